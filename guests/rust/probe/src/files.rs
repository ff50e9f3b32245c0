//! fs.

use crate::Said;
use crate::bindings::astrid::fs::host::{self as fs, OpenMode};

pub fn fs(said: &mut Said) {
    said.tell("fs-mkdir", fs::fs_mkdir("made"));
    said.tell("fs-mkdir", fs::fs_mkdir("made"));
    said.tell("fs-mkdir-all", fs::fs_mkdir_all("made/deep/er"));
    said.tell("write-file", fs::write_file("made/ä.txt", b"one\x00\xff"));
    said.tell("fs-append", fs::fs_append("made/ä.txt", b"two"));
    said.tell("read-file", fs::read_file("made/ä.txt"));
    said.tell("read-file", fs::read_file("made/nothing"));
    said.tell("read-file", fs::read_file("../outside"));
    said.tell("fs-exists", fs::fs_exists("made/ä.txt"));
    said.tell("fs-exists", fs::fs_exists("made/nothing"));
    said.tell("fs-stat", fs::fs_stat("made/ä.txt"));
    said.tell("fs-stat", fs::fs_stat("made/nothing"));
    said.tell("fs-stat-symlink", fs::fs_stat_symlink("link"));
    said.tell("fs-read-link", fs::fs_read_link("link"));
    said.tell("fs-canonicalize", fs::fs_canonicalize("made/./ä.txt"));
    said.tell("fs-copy", fs::fs_copy("made/ä.txt", "made/copy"));
    said.tell("fs-rename", fs::fs_rename("made/copy", "made/renamed"));
    said.tell("fs-hard-link", fs::fs_hard_link("made/renamed", "made/second"));
    handles(said);
    said.tell("fs-readdir", fs::fs_readdir("made"));
    said.tell("fs-readdir", fs::fs_readdir("made/ä.txt"));
    said.tell("fs-unlink", fs::fs_unlink("made/second"));
    said.tell("fs-unlink", fs::fs_unlink("made/second"));
    said.tell("fs-remove-dir-all", fs::fs_remove_dir_all("made"));
}

fn handles(said: &mut Said) {
    for mode in [OpenMode::Write, OpenMode::Append, OpenMode::ReadWrite, OpenMode::Read] {
        let Ok(file) = said.note("fs-open", fs::fs_open("made/opened", mode)) else {
            continue;
        };
        said.tell("[method]file-handle.write-at", file.write_at(2, b"written"));
        said.tell("[method]file-handle.read-at", file.read_at(0, 100));
        said.tell("[method]file-handle.set-len", file.set_len(5));
        said.tell("[method]file-handle.sync-data", file.sync_data());
        said.tell("[method]file-handle.sync-all", file.sync_all());
        said.tell("[method]file-handle.stat", file.stat());
    }
    said.tell("fs-open", fs::fs_open("made/not there", OpenMode::Read));
}
