//! A short text over a socket, with a descriptor perhaps.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Longer than any text.
const LENGTH: usize = 64;

/// Sends a text, with a descriptor perhaps. A reader that has gone is an error, and no signal.
pub(super) fn send(
    to: impl AsFd,
    text: &str,
    with: Option<BorrowedFd<'_>>,
    flags: SendFlags,
) -> io::Result<()> {
    let rights = with.map(|fd| [fd]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if let Some(rights) = &rights {
        ancillary.push(SendAncillaryMessage::ScmRights(rights));
    }
    // Elsewhere it does with Rust's runtime, which ignores that signal.
    #[cfg(target_os = "linux")]
    let flags = flags | SendFlags::NOSIGNAL;
    sendmsg(to, &[IoSlice::new(text.as_bytes())], &mut ancillary, flags)?;
    Ok(())
}

/// Returns the text, and the descriptor that came with it. The end is `Errno::PIPE`.
pub(crate) fn receive(
    from: impl AsFd,
    flags: RecvFlags,
) -> Result<(String, Option<OwnedFd>), Errno> {
    let mut bytes = [0; LENGTH];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    #[cfg(target_os = "linux")]
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let mut read = || {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        recvmsg(&from, &mut buffers, &mut ancillary, flags)
    };
    let received = match read() {
        // The other side has gone and had not read all of ours. What it has said stands behind that.
        Err(Errno::CONNRESET) => read(),
        received => received,
    }?;
    if received.bytes == 0 {
        return Err(Errno::PIPE);
    }
    let with = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
        _ => None,
    });
    // In two steps: whoever receives one has no other thread yet that could start a program between.
    #[cfg(not(target_os = "linux"))]
    if let Some(fd) = &with {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    }
    let text = String::from_utf8_lossy(&bytes[..received.bytes]).into_owned();
    Ok((text, with))
}
