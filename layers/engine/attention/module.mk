# Engines of attention.

# Products are added up: fused where the processor can.
FLAGS_$(D)/flash_tile := -ffp-contract=fast
FLAGS_$(D)/flash_rows := -ffp-contract=fast
FLAGS_$(D)/flash_pairs := -ffp-contract=fast
SVE_FILES += $(addprefix $(D)/,flash_tile flash_rows flash_pairs)
# A choice may compute both sides, and loops with one vectorise.
FLAGS_$(D)/flash_pack := -fno-trapping-math
