//! The messages of errors: one line for each code that the headers name, in this library's own words.

use std::ffi::{CStr, c_char};

/// A code and its message. In ascending order.
type Message = (u32, &'static CStr);

#[rustfmt::skip]
static MESSAGES: [Message; 209] = [
    (0, c"The call has succeeded."),
    (1, c"The call is not possible for this object."),
    (2, c"There is no file of this name."),
    (3, c"There is no folder of this path."),
    (4, c"Too many files are open."),
    (5, c"Access was denied."),
    (6, c"The handle is not valid."),
    (8, c"There is not enough memory."),
    (12, c"The access mode is not valid."),
    (13, c"The data is not valid."),
    (14, c"There is not enough memory left."),
    (15, c"There is no such drive."),
    (17, c"The file cannot be moved to another disk."),
    (18, c"There are no more files."),
    (19, c"The medium is protected against writing."),
    (20, c"The system does not know the device."),
    (21, c"The device is not ready."),
    (22, c"The device does not know the command."),
    (23, c"The data has a checksum error."),
    (24, c"The length is not that of the command."),
    (26, c"The disk has no file system that the system knows."),
    (27, c"The disk has no such sector."),
    (28, c"The printer has no paper."),
    (31, c"A device does not work."),
    (32, c"Another process has the file open and does not share it."),
    (33, c"Another process has locked a part of the file."),
    (34, c"The wrong disk is in the drive."),
    (38, c"The end of the file was reached."),
    (39, c"The disk has no room left."),
    (50, c"The request is not supported."),
    (51, c"The remote computer is not there."),
    (52, c"The name is on the network already."),
    (53, c"The network path was not found."),
    (54, c"The network is busy."),
    (55, c"The device is no longer available."),
    (58, c"The server's response does not match the request."),
    (59, c"An unexpected error of the network occurred."),
    (64, c"The network name is no longer available."),
    (65, c"Access to the network was denied."),
    (67, c"The network name was not found."),
    (68, c"There are too many names."),
    (71, c"The remote computer takes no more connections."),
    (80, c"The file already exists."),
    (82, c"The file or folder cannot be created."),
    (84, c"There is no room for the request."),
    (85, c"The name is in use on this computer."),
    (86, c"The password is wrong."),
    (87, c"A parameter is not valid."),
    (89, c"The system can start no other process."),
    (109, c"The other end of the pipe is closed."),
    (110, c"The file or device cannot be opened."),
    (111, c"The name or the data is too long for the buffer."),
    (112, c"The disk is full."),
    (113, c"There are no more search handles."),
    (120, c"The call is not implemented on this system."),
    (121, c"The wait has timed out."),
    (122, c"The buffer is too small for the data."),
    (123, c"The name is not valid."),
    (126, c"There is no such module."),
    (127, c"The module has no such function."),
    (128, c"There is no child to wait for."),
    (131, c"The place is before the beginning of the file."),
    (145, c"The folder is not empty."),
    (156, c"The receiver has refused the signal."),
    (158, c"The part of the file is not locked."),
    (161, c"The path is not valid."),
    (170, c"The resource is in use."),
    (183, c"An object with this name already exists."),
    (193, c"The file is not a program."),
    (203, c"There is no such variable in the environment."),
    (205, c"No process of the group handles signals."),
    (206, c"The name of the file is too long."),
    (208, c"Too many names match the pattern."),
    (223, c"The file would be too large."),
    (230, c"The state of the pipe does not allow the call."),
    (231, c"All instances of the pipe are in use."),
    (232, c"The pipe is being closed."),
    (233, c"No process is at the other end of the pipe."),
    (234, c"There is more data."),
    (258, c"The wait has timed out."),
    (267, c"The name is not that of a folder."),
    (277, c"The table of extended attributes is full."),
    (288, c"The calling thread does not own the object."),
    (298, c"The semaphore's count would exceed its maximum."),
    (317, c"There is no message for this code."),
    (487, c"The address is not valid."),
    (535, c"A process is already connected to the other end of the pipe."),
    (735, c"The object that was waited for is closed."),
    (740, c"The call needs more rights."),
    (995, c"The operation was cancelled."),
    (996, c"The operation has not ended yet."),
    (997, c"The operation is in progress."),
    (998, c"The address may not be used."),
    (1004, c"A flag is not valid."),
    (1006, c"The file has changed or is empty."),
    (1056, c"The service is already running."),
    (1100, c"The tape has ended."),
    (1101, c"The tape has reached a file mark."),
    (1102, c"The tape is at its beginning."),
    (1103, c"The tape has reached a set mark."),
    (1104, c"The tape has no more data."),
    (1106, c"The length of a block on the tape is wrong."),
    (1111, c"The bus was reset."),
    (1113, c"A character has no form in the other encoding."),
    (1117, c"The device has failed to read or write."),
    (1129, c"The tape has ended, and the write went past its end."),
    (1132, c"The address or offset is not a multiple of 64 KiB."),
    (1165, c"The device needs cleaning."),
    (1166, c"The door of the device is open."),
    (1168, c"Nothing of this kind was found."),
    (1214, c"The network name is not valid."),
    (1223, c"The user has cancelled the operation."),
    (1225, c"The other computer has refused the connection."),
    (1226, c"The connection was closed in order."),
    (1227, c"The address is already associated."),
    (1228, c"The address is associated with nothing."),
    (1229, c"There is no such connection."),
    (1230, c"The connection is in use."),
    (1231, c"The network cannot be reached."),
    (1232, c"The host cannot be reached."),
    (1233, c"The protocol is not there at the other end."),
    (1234, c"No service listens at this port."),
    (1235, c"The request was aborted."),
    (1236, c"The connection was aborted by this computer."),
    (1237, c"The operation has failed and should be tried again."),
    (1256, c"The remote computer is down."),
    (1287, c"An error occurred that has no name."),
    (1314, c"The caller lacks a right that the call needs."),
    (1359, c"An internal error occurred."),
    (1393, c"The disk is damaged."),
    (1450, c"The system has too few resources for the call."),
    (1451, c"The system has too little memory that stays in place."),
    (1452, c"The system has too little memory that can be moved."),
    (1453, c"The process may not use more memory."),
    (1454, c"The process may not use more of the page file."),
    (1455, c"The system has too little memory for the call."),
    (1460, c"The operation has timed out."),
    (1464, c"Symbolic links are not supported."),
    (1656, c"The two handles are not those of one object."),
    (1784, c"The buffer is not valid for the operation."),
    (1813, c"The file has no resource of that type."),
    (1816, c"The quota is used up."),
    (1920, c"The file cannot be accessed."),
    (1921, c"The name leads round in a circle."),
    (2250, c"There is no such network connection."),
    (4392, c"The data of the reparse point is not valid."),
    (10000, c"A socket call has failed."),
    (10004, c"The call was interrupted."),
    (10009, c"The descriptor is not valid."),
    (10013, c"The socket may not be used in this way."),
    (10014, c"A pointer in the call is not valid."),
    (10022, c"An argument is not valid."),
    (10024, c"Too many sockets are open."),
    (10035, c"The call would block, and the socket is non-blocking."),
    (10036, c"A blocking call is in progress."),
    (10037, c"The call is already in progress."),
    (10038, c"The descriptor is not that of a socket."),
    (10039, c"The call needs an address."),
    (10040, c"The datagram is longer than the buffer, or than the network allows."),
    (10041, c"The protocol does not go with the type of socket."),
    (10042, c"There is no such option at this level."),
    (10043, c"The protocol is not supported."),
    (10044, c"The type of socket is not supported."),
    (10045, c"The call is not supported for this socket."),
    (10046, c"The protocol family is not supported."),
    (10047, c"The address does not go with the protocol."),
    (10048, c"The address is in use."),
    (10049, c"The address is not one of this computer."),
    (10050, c"The network is down."),
    (10051, c"There is no route to the network."),
    (10052, c"The connection was lost during keep-alive."),
    (10053, c"The connection was aborted on this computer."),
    (10054, c"The peer has reset the connection."),
    (10055, c"There is not enough room in the buffers."),
    (10056, c"The socket is already connected."),
    (10057, c"The socket is not connected."),
    (10058, c"The socket was shut down in this direction."),
    (10059, c"There are too many references."),
    (10060, c"The other side has not answered in time."),
    (10061, c"The other computer has refused the connection."),
    (10062, c"The name leads back to itself."),
    (10063, c"The name is too long."),
    (10064, c"The host is down."),
    (10065, c"There is no route to the host."),
    (10066, c"The folder is not empty."),
    (10067, c"Too many processes use the network."),
    (10068, c"The user's quota is used up."),
    (10069, c"The disk quota is used up."),
    (10070, c"The file no longer exists."),
    (10071, c"The file is on another computer."),
    (10091, c"The network is not ready."),
    (10092, c"The version of Winsock is not supported."),
    (10093, c"WSAStartup was not called."),
    (10101, c"The peer has closed the connection in order."),
    (10102, c"There are no more results."),
    (10103, c"The lookup was cancelled."),
    (10104, c"The provider's table of calls is not valid."),
    (10105, c"The provider is not valid."),
    (10106, c"The provider could not be loaded or started."),
    (10107, c"A system call has failed."),
    (10108, c"There is no such service in this name space."),
    (10109, c"There is no such service."),
    (10110, c"There are no more results."),
    (10111, c"The lookup was cancelled."),
    (10112, c"The server has refused the lookup."),
    (11001, c"There is no such host."),
    (11002, c"The name server has not answered."),
    (11003, c"The name server has failed for good."),
    (11004, c"The name has no address of this type."),
];

/// The message of a code, which stays forever; null if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn cp_message(code: u32) -> *const c_char {
    MESSAGES
        .binary_search_by_key(&code, |(code, _)| *code)
        .map_or(std::ptr::null(), |at| MESSAGES[at].1.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_ascend() {
        assert!(MESSAGES.is_sorted_by(|(less, _), (more, _)| less < more));
    }

    #[test]
    fn each_message_is_one_plain_line_that_fits_every_buffer() {
        for (code, text) in &MESSAGES {
            let text = text.to_str().unwrap();
            assert!(text.is_ascii() && text.ends_with('.') && !text.contains('\n'), "{code}");
            assert!(text.len() < 200, "{code}");
        }
    }

    #[test]
    fn each_code_that_the_header_names_has_a_message() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/compat/include/cp_errors.h");
        let text = std::fs::read_to_string(path).unwrap();
        let mut count = 0;
        for line in text.lines() {
            let number = line.strip_prefix("#define ").and_then(|line| line.split(' ').nth(1));
            let Some(code) = number.and_then(|number| number.parse().ok()) else { continue };
            assert!(!cp_message(code).is_null(), "{line}");
            count += 1;
        }
        assert!(count > 100, "only {count} codes were found in the header");
        assert!(cp_message(12345).is_null());
    }
}
