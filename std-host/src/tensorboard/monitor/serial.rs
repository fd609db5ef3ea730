//! Opening of serial ports.

use crate::files::{FileError, FileResult};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{ControlModes, OptionalActions, ioctl_tiocexcl, isatty, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a serial port in raw mode with `baud` bits per second, 8 data bits, no parity and one stop bit. There is no echo, no
/// translation and no flow control.
///
/// Fails if the port does not exist, is in use, cannot be accessed, or does not support the speed.
pub fn open_serial(path: &Path, baud: u32) -> FileResult<File> {
    let failed = |error: std::io::Error| FileError::io(path, error);
    // Without O_NONBLOCK, `open` waits for a carrier signal, which most devices never send.
    let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
    let port = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path).map_err(failed)?;
    if !isatty(&port) {
        return Err(FileError::new(path, "is not a serial port; use --stdin to read a file or a pipe"));
    }
    let set = || -> rustix::io::Result<()> {
        ioctl_tiocexcl(&port)?;
        let mut settings = tcgetattr(&port)?;
        settings.make_raw();
        settings.control_modes |= ControlModes::CLOCAL | ControlModes::CREAD;
        settings.control_modes -= ControlModes::CSTOPB | ControlModes::CRTSCTS;
        settings.set_speed(baud)?;
        tcsetattr(&port, OptionalActions::Flush, &settings)?;
        fcntl_setfl(&port, fcntl_getfl(&port)? - OFlags::NONBLOCK)
    };
    set().map_err(|error| FileError::new(path, format!("cannot be set to {baud} baud: {}", std::io::Error::from(error))))?;
    Ok(port)
}
