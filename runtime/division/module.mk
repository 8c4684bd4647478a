# A net that the ranks of a job run together: groups, nets, exchange.
