"""Messages on the wire: the only place that knows protobuf and gRPC.

`messages` holds the dataclasses of the data plane and of client calls, `convert` maps dataclasses to protobuf by field
name, `frames` carries record bytes past protobuf, `transport` is the seam, `grpc_transport` its gRPC side.
"""
