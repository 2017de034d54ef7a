"""The parts that our four HTTP servers share: sockets, connections, tokens, bodies. It defines no paths."""
