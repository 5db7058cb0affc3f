"""How clients reach nodes: streams over TCP, at the port for clients."""
