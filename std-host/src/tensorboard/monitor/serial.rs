//! A serial port.

use crate::files::{FileError, FileResult};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::termios::{ControlModes, OptionalActions, ioctl_tiocexcl, isatty, tcgetattr, tcsetattr};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a serial port at so many bits a second, 8 bits without parity, one stop bit, as it is: nothing echoes, nothing is translated.
///
/// Fails where there is no such port, where it is in use or forbidden, and where it cannot be that fast.
pub fn open_serial(path: &Path, baud: u32) -> FileResult<File> {
    let failed = |error: std::io::Error| FileError::io(path, error);
    // Without waiting for a carrier, which most devices never give.
    let flags = OFlags::NOCTTY | OFlags::NONBLOCK;
    let port = OpenOptions::new().read(true).write(true).custom_flags(flags.bits() as i32).open(path).map_err(failed)?;
    if !isatty(&port) {
        return Err(FileError::new(path, "is no serial port; a file or a pipe is read with --stdin"));
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
