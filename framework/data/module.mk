# Readers, transforms, sharding, prefetch, converters.
$(call needs,LMDB,writer_lmdb)
$(call needs,TURBOJPEG,image_jpeg)
$(call needs,PNG,image_png)
$(call needs,WEBP,image_webp)
$(call needs,TIFF,image_tiff)
