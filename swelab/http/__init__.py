"""The parts that our four HTTP servers share: sockets, connections, tokens, bodies.

This package defines no URL paths.
"""
