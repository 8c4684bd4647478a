-: topology/topo.h framework/base/status.h framework/base/log.h
framework/base/status.h:
framework/base/log.h:
