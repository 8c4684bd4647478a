"""Caffe's messages: `from cortado.caffe.proto import caffe_pb2`. Needs the package protobuf."""
