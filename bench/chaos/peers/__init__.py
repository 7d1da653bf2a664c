"""Programs of the peers, run by their own Python; what is documented as safe is switched on."""
