# Engines of local response normalisation.
LONGEST += $(D)/lrn_blocked
