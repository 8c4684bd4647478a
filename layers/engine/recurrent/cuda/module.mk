$(call needs,CUDNN,cell_cudnn)
