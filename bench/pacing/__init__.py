"""How well the waiting end spends its requests, beside its peers, in virtual time; and what deciding costs."""
