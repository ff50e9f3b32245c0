//! io: pollables, streams and errors, those of sockets on loopback.

use crate::Said;
use crate::bindings::astrid::io::poll::{self, Pollable};
use crate::bindings::astrid::io::streams::{InputStream, OutputStream, StreamError};
use crate::bindings::astrid::net::host as net;
use crate::sockets::pair;

pub fn io(said: &mut Said, port: u16) {
    said.tell("poll", poll::poll(&[]));
    let Some((near, far)) = pair(said, port) else {
        return;
    };
    let sends = said.note("[method]tcp-stream.write-stream", near.write_stream());
    let receives = said.note("[method]tcp-stream.read-stream", far.read_stream());
    polling(said, &sends, &receives);
    writing(said, &sends, &receives);
    splicing(said, &near, &far);
    failing(said, near, &receives);
}

fn polling(said: &mut Said, sends: &OutputStream, receives: &InputStream) {
    let writable = said.note("[method]output-stream.subscribe", sends.subscribe());
    let readable: Pollable = said.note("[method]input-stream.subscribe", receives.subscribe());
    said.tell("[method]pollable.block", writable.block());
    said.tell("[method]pollable.ready", writable.ready());
    said.tell("[method]pollable.ready", readable.ready());
    said.tell("poll", poll::poll(&[&readable, &writable]));
    said.tell("[method]input-stream.read", receives.read(10));
}

fn writing(said: &mut Said, sends: &OutputStream, receives: &InputStream) {
    said.tell("[method]output-stream.check-write", sends.check_write());
    said.tell("[method]output-stream.write", sends.write(b"one"));
    said.tell("[method]output-stream.flush", sends.flush());
    said.tell("[method]output-stream.blocking-flush", sends.blocking_flush());
    said.tell("[method]input-stream.blocking-read", receives.blocking_read(3));
    said.tell("[method]output-stream.blocking-write-and-flush", sends.blocking_write_and_flush(b"two!"));
    said.tell("[method]input-stream.blocking-skip", receives.blocking_skip(1));
    said.tell("[method]input-stream.skip", receives.skip(1));
    said.tell("[method]input-stream.read", receives.read(10));
    said.tell("[method]output-stream.check-write", sends.check_write());
    said.tell("[method]output-stream.write-zeroes", sends.write_zeroes(2));
    said.tell("[method]output-stream.blocking-flush", sends.blocking_flush());
    said.tell("[method]input-stream.blocking-read", receives.blocking_read(2));
    let zeroes = sends.blocking_write_zeroes_and_flush(3);
    said.tell("[method]output-stream.blocking-write-zeroes-and-flush", zeroes);
    said.tell("[method]input-stream.blocking-read", receives.blocking_read(3));
}

/// What the far end sends back to the near one goes round once more.
fn splicing(said: &mut Said, near: &net::TcpStream, far: &net::TcpStream) {
    let back = said.note("[method]tcp-stream.write-stream", far.write_stream());
    let came = said.note("[method]tcp-stream.read-stream", near.read_stream());
    let again = said.note("[method]tcp-stream.write-stream", near.write_stream());
    said.tell("[method]output-stream.splice", again.splice(&came, 4));
    said.tell("[method]output-stream.blocking-write-and-flush", back.blocking_write_and_flush(b"four"));
    said.tell("[method]output-stream.blocking-splice", again.blocking_splice(&came, 4));
    said.tell("[method]output-stream.blocking-flush", again.blocking_flush());
    let heard = said.note("[method]tcp-stream.read-stream", far.read_stream());
    said.tell("[method]input-stream.blocking-read", heard.blocking_read(4));
}

/// A connection that is reset is an error, which tells more; after it the stream is closed.
fn failing(said: &mut Said, near: net::TcpStream, receives: &InputStream) {
    said.tell("[method]tcp-stream.set-linger", near.set_linger(Some(0)));
    drop(near);
    let read = said.note("[method]input-stream.blocking-read", receives.blocking_read(1));
    if let Err(StreamError::LastOperationFailed(error)) = read {
        said.tell("[method]error.to-debug-string", error.to_debug_string());
    }
    said.tell("[method]input-stream.read", receives.read(1));
}
