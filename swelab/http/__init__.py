"""What our four HTTP servers share: sockets, connections, tokens, bodies. It knows no path of any of them."""
