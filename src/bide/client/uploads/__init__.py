"""Files that become jobs: read, sent the way that suits their size, gone on with after anything that cuts them off."""
