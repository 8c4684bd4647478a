# The network: addresses, and HTTP by libmicrohttpd.
$(call needs_else,MICROHTTPD,front,front_none)
