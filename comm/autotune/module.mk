# What chooses codecs and collectives: by the cost model, then by real steps.
$(call sim_twins,codec_speed codec_calibrate)
IN_SIM := all
