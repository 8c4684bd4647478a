# Matrix and vector operations; the table of devices.
IN_SIM := square_tree update_cpu vector_cpu

# Products are added up: fused where the processor can.
FLAGS_$(D)/gemm_tile := -ffp-contract=fast
SVE_FILES += $(D)/gemm_tile
# sqrtf is then an instruction, which vectorises.
FLAGS_$(D)/update_cpu := -fno-math-errno
