# Engines of convolutions.
$(call needs,ONEDNN,conv_onednn)

# Products are added up: fused where the processor can.
FLAGS_$(D)/tile := -ffp-contract=fast
FLAGS_$(D)/blocked_tile := -ffp-contract=fast
FLAGS_$(D)/blocked_depth := -ffp-contract=fast
FLAGS_$(D)/blocked_list := -ffp-contract=fast
FLAGS_$(D)/winograd_map := -ffp-contract=fast
SVE_FILES += $(addprefix $(D)/,tile blocked_tile blocked_list blocked_depth winograd_map)
ifeq ($(CLANG),)
  # Its products stay with their sums.
  FLAGS_$(D)/winograd_map += -fno-tree-pre
  # 96 tiles: where their variables are, for debuggers, is a fifth of what they take to compile.
  FLAGS_$(D)/blocked_tile += -fno-var-tracking-assignments
endif
# It takes longest to compile and so begins first: no processor is left alone with it at the end.
LONGEST += $(D)/blocked_tile
