$(call needs,CUDNN,cell_cudnn cell_plan_cudnn)
