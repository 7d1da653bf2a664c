"""How well the client spends its requests compared with peers, in virtual time; and the cost of each decision."""
