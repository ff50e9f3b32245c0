"""The control socket: how other processes of the same user talk to a running host.

A peer shakes hands and then exchanges frames, each a big-endian length of four bytes and an `IpcMessage` as JSON, as on an
Astrid host's socket. What it sends is published on behalf of the principal it works as; what matches its patterns is sent to it.
Who may open the socket may do whatever the host's owner may: its folder and file are its user's alone, and a peer of another
user is refused. (Astrid, uplink frames and handshake.)
"""
