# What chooses codecs and collectives: by the cost model, then by real steps.
$(call sim_twins,codec_speed)
IN_SIM := all
