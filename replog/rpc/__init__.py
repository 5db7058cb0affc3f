"""Messages on the wire: the only place that knows protobuf and gRPC.

`messages` holds the classes of the data path, `metadata_messages`, `node_messages` and the like
those of the other calls; `convert` maps structs to protobuf by field name, `frames` carries record bytes past
protobuf, `transport` is the seam, `tcp` the two ends of it for clients, `grpc` the way between nodes.
"""
