//! net: sockets on loopback, and the capsule's own.

use crate::Said;
use crate::bindings::astrid::net::host::{self as net, ShutdownHow, TcpStream, UdpSocket};

const LOOPBACK: &str = "127.0.0.1";

/// What it listens on has that port: the host lets no guest connect to others.
pub fn net(said: &mut Said, port: u16) {
    said.tell("lookup-host", net::lookup_host("localhost"));
    said.tell("lookup-host", net::lookup_host("not.allowed"));
    said.tell("connect-tcp", net::connect_tcp("not.allowed", 80));
    if let Some((near, far)) = pair(said, port) {
        options(said, &near);
        traffic(said, &near, &far);
    }
    unix(said);
    datagrams(said, port);
}

/// Two ends of a connection.
pub fn pair(said: &mut Said, port: u16) -> Option<(TcpStream, TcpStream)> {
    let listener = said.note("bind-tcp", net::bind_tcp(LOOPBACK, port)).ok()?;
    said.tell("[method]tcp-listener.local-addr", listener.local_addr());
    let arrival = said.note("[method]tcp-listener.subscribe-readiness", listener.subscribe_readiness());
    said.tell("[method]pollable.ready", arrival.ready());
    said.tell("[method]tcp-listener.poll-accept", listener.poll_accept(1));
    let near = said.note("connect-tcp", net::connect_tcp(LOOPBACK, port)).ok()?;
    let far = said.note("[method]tcp-listener.accept", listener.accept()).ok()?;
    Some((near, far))
}

fn options(said: &mut Said, near: &TcpStream) {
    said.tell("[method]tcp-stream.set-nodelay", near.set_nodelay(true));
    said.tell("[method]tcp-stream.nodelay", near.nodelay());
    said.tell("[method]tcp-stream.set-read-timeout", near.set_read_timeout(Some(20)));
    said.tell("[method]tcp-stream.read-timeout", near.read_timeout());
    said.tell("[method]tcp-stream.set-write-timeout", near.set_write_timeout(Some(2000)));
    said.tell("[method]tcp-stream.write-timeout", near.write_timeout());
    said.tell("[method]tcp-stream.set-hop-limit", near.set_hop_limit(7));
    said.tell("[method]tcp-stream.hop-limit", near.hop_limit());
    said.tell("[method]tcp-stream.set-keepalive", near.set_keepalive(Some(30)));
    said.tell("[method]tcp-stream.keepalive", near.keepalive());
    said.tell("[method]tcp-stream.set-linger", near.set_linger(Some(1000)));
    said.tell("[method]tcp-stream.linger", near.linger());
    said.tell("[method]tcp-stream.set-linger", near.set_linger(None));
    said.tell("[method]tcp-stream.set-reuseaddr", near.set_reuseaddr(true));
    said.tell("[method]tcp-stream.reuseaddr", near.reuseaddr());
    said.tell("[method]tcp-stream.peer-addr", near.peer_addr());
    said.tell("[method]tcp-stream.local-addr", near.local_addr());
}

fn traffic(said: &mut Said, near: &TcpStream, far: &TcpStream) {
    let readable = said.note("[method]tcp-stream.subscribe-readable", far.subscribe_readable());
    said.tell("[method]tcp-stream.write", near.write(b"framed"));
    said.tell("[method]pollable.block", readable.block());
    said.tell("[method]tcp-stream.read", far.read());
    said.tell("[method]tcp-stream.write-bytes", far.write_bytes(b"bare"));
    said.tell("[method]tcp-stream.peek", near.peek(2));
    said.tell("[method]tcp-stream.read-bytes", near.read_bytes(4));
    said.tell("[method]tcp-stream.read-bytes", near.read_bytes(4));
    said.tell("[method]tcp-stream.write-stream", far.write_stream());
    said.tell("[method]tcp-stream.read-stream", near.read_stream());
    said.tell("[method]tcp-stream.shutdown", near.shutdown(ShutdownHow::Send));
    said.tell("[method]tcp-stream.read", far.read());
}

/// Two peers come, as soon as it listens.
fn unix(said: &mut Said) {
    let Ok(listener) = said.note("bind-unix", net::bind_unix()) else {
        return;
    };
    let arrival = said.note("[method]unix-listener.subscribe-readiness", listener.subscribe_readiness());
    said.tell("[method]pollable.block", arrival.block());
    let first = said.note("[method]unix-listener.accept", listener.accept());
    said.tell("[method]unix-listener.poll-accept", listener.poll_accept(10_000));
    if let Ok(peer) = first {
        said.tell("[method]tcp-stream.hop-limit", peer.hop_limit());
    }
}

fn datagrams(said: &mut Said, port: u16) {
    let (Ok(near), Ok(far)) = (bound(said, 0), bound(said, port)) else {
        return;
    };
    said.tell("[method]udp-socket.local-addr", far.local_addr());
    said.tell("[method]udp-socket.peer-addr", near.peer_addr());
    said.tell("[method]udp-socket.set-read-timeout", far.set_read_timeout(Some(2000)));
    let readable = said.note("[method]udp-socket.subscribe-readable", far.subscribe_readable());
    said.tell("[method]udp-socket.send-to", near.send_to(b"one", LOOPBACK, port));
    said.tell("[method]pollable.block", readable.block());
    said.tell("[method]udp-socket.recv-from", far.recv_from(100));
    itself(said, &far, port);
}

/// A socket that is connected to itself.
fn itself(said: &mut Said, socket: &UdpSocket, port: u16) {
    said.tell("[method]udp-socket.send", socket.send(b"nowhere"));
    said.tell("[method]udp-socket.connect", socket.connect(LOOPBACK, port));
    said.tell("[method]udp-socket.peer-addr", socket.peer_addr());
    said.tell("[method]udp-socket.send", socket.send(b"two"));
    said.tell("[method]udp-socket.recv", socket.recv(100));
    said.tell("[method]udp-socket.disconnect", socket.disconnect());
    said.tell("[method]udp-socket.recv", socket.recv(100));
}

fn bound(said: &mut Said, port: u16) -> Result<UdpSocket, ()> {
    said.note("udp-bind", net::udp_bind(LOOPBACK, port)).map_err(|_| ())
}
