/* TransmitFile and TransmitPackets: sending files over sockets, with data before and after, as an
 * operation and with a blocking call. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <linux/sockios.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include "check.h"
#include "overlapped.h"

#define KEY 21u
enum { LENGTH = 3 << 20 };

static char name[64];
static HANDLE port, file;
static char *contents;

static char byte_at(size_t place)
{
    return (char)(place * 13 + place / 509);
}

/* A thread that reads a stream to its end, or that many bytes of it. */
typedef struct READER {
    SOCKET from;
    size_t wanted, got;
    char *bytes;
    HANDLE thread;
} READER;

static DWORD WINAPI reads(LPVOID argument)
{
    READER *it = (READER *)argument;
    while (it->got < it->wanted) {
        ssize_t part = recv(it->from, it->bytes + it->got, it->wanted - it->got, 0);
        if (part <= 0)
            break;
        it->got += (size_t)part;
    }
    return 0;
}

static void begin_to_read(READER *it, SOCKET from, size_t wanted)
{
    it->from = from;
    it->wanted = wanted;
    it->got = 0;
    it->bytes = (char *)malloc(wanted);
    CHECK(it->bytes != NULL);
    it->thread = CreateThread(NULL, 0, reads, it, 0, NULL);
    CHECK(it->thread != NULL);
}

/* It has read `head`, that many bytes of the file from `place`, and `tail`. */
static void has_read(READER *it, const char *head, size_t place, size_t size, const char *tail)
{
    size_t before = strlen(head), behind = strlen(tail);
    CHECK_IS(WaitForSingleObject(it->thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(it->got, before + size + behind);
    CHECK(memcmp(it->bytes, head, before) == 0);
    CHECK(memcmp(it->bytes + before, contents + place, size) == 0);
    CHECK(memcmp(it->bytes + before + size, tail, behind) == 0);
    free(it->bytes);
    CHECK(CloseHandle(it->thread));
}

static TRANSMIT_FILE_BUFFERS beside(const char *head, const char *tail)
{
    TRANSMIT_FILE_BUFFERS buffers;
    buffers.Head = (void *)(uintptr_t)head;
    buffers.HeadLength = (DWORD)strlen(head);
    buffers.Tail = (void *)(uintptr_t)tail;
    buffers.TailLength = (DWORD)strlen(tail);
    return buffers;
}

static OVERLAPPED at(DWORD place)
{
    OVERLAPPED overlapped = fresh(NULL);
    overlapped.Offset = place;
    overlapped.OffsetHigh = 0;
    return overlapped;
}

static void a_file_goes_whole_with_what_is_beside_it(void)
{
    TRANSMIT_FILE_BUFFERS buffers = beside("the head", "and the tail");
    OVERLAPPED overlapped = at(0);
    READER reader;
    SOCKET near, far;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    begin_to_read(&reader, far, LENGTH + 20);
    CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, &buffers, 0));
    CHECK_ENDED(port, KEY, &overlapped, LENGTH + 20);
    has_read(&reader, "the head", 0, LENGTH, "and the tail");
    /* A part of it. */
    overlapped = at(1000);
    begin_to_read(&reader, far, 5000);
    CHECK_BEGINS(TransmitFile(near, file, 5000, 512, &overlapped, NULL, TF_USE_KERNEL_APC));
    CHECK_ENDED(port, KEY, &overlapped, 5000);
    has_read(&reader, "", 1000, 5000, "");
    /* Only the head and the tail, without a file. */
    begin_to_read(&reader, far, 20);
    CHECK_BEGINS(TransmitFile(near, NULL, 0, 0, &overlapped, &buffers, 0));
    CHECK_ENDED(port, KEY, &overlapped, 20);
    has_read(&reader, "the head", 0, 0, "and the tail");
    /* Nothing. */
    CHECK_BEGINS(TransmitFile(near, NULL, 0, 0, &overlapped, NULL, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    overlapped = at(LENGTH);
    CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    /* The socket blocks, as before. */
    CHECK_IS(fcntl((int)near, F_GETFL) & O_NONBLOCK, 0);
    closesocket(near);
    closesocket(far);
}

/* It waits while the peer does not read, and continues without a thread waiting on the port. Sends
 * are queued. */
static void it_goes_on_as_the_peer_reads(void)
{
    OVERLAPPED overlapped = at(0), behind = at(0);
    DWORD done = UNTOUCHED;
    OVERLAPPED_ENTRY entry;
    UINT32 count;
    READER reader;
    SOCKET near, far;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    CHECK(send_from(near, contents, LENGTH, NULL, &behind) == 0 || WSAGetLastError() == WSA_IO_PENDING);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0), ERROR_IO_PENDING);
    CHECK_FALSE(GetOverlappedResult((HANDLE)near, &overlapped, &done, FALSE), ERROR_IO_INCOMPLETE);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0), WSAEINVAL);
    begin_to_read(&reader, far, 2 * LENGTH);
    until_ended(&overlapped);
    CHECK_ENDED(port, KEY, &behind, LENGTH);
    CHECK_ENDED(port, KEY, &overlapped, LENGTH);
    CHECK_IS(WaitForSingleObject(reader.thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(reader.got, 2 * LENGTH);
    CHECK(memcmp(reader.bytes, contents, LENGTH) == 0 && memcmp(reader.bytes + LENGTH, contents, LENGTH) == 0);
    free(reader.bytes);
    CHECK(CloseHandle(reader.thread));
    closesocket(near);
    closesocket(far);
    /* It is cancelled as a send is. */
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    for (;;) { /* until one has to wait, because nobody reads */
        CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0));
        if (take_one(port, A_WHILE, &entry, &count) == WAIT_TIMEOUT)
            break;
    }
    CHECK(CancelIoEx((HANDLE)near, &overlapped));
    SetLastError(0);
    CHECK(!GetOverlappedResult((HANDLE)near, &overlapped, &done, TRUE));
    CHECK_IS(GetLastError(), ERROR_OPERATION_ABORTED);
    CHECK_FAILED(port, KEY, &overlapped, done, ERROR_OPERATION_ABORTED);
    closesocket(near);
    closesocket(far);
}

static void a_call_without_an_overlapped_waits(void)
{
    TRANSMIT_FILE_BUFFERS buffers = beside("head", "tail");
    HANDLE plain = CreateFileA(name, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    READER reader;
    SOCKET near, far;
    u_long on = 1;
    DWORD milliseconds = 20;
    tcp_pair(&near, &far);
    CHECK(plain != INVALID_HANDLE_VALUE);
    begin_to_read(&reader, far, LENGTH + 8);
    CHECK(TransmitFile(near, plain, 0, 0, NULL, &buffers, 0));
    has_read(&reader, "head", 0, LENGTH, "tail");
    /* From where the file is; also if the socket does not block. */
    CHECK_IS(SetFilePointer(plain, 100, NULL, FILE_BEGIN), 100);
    CHECK_IS(ioctlsocket(near, FIONBIO, &on), 0);
    begin_to_read(&reader, far, LENGTH - 100);
    CHECK(TransmitFile(near, plain, 0, 0, NULL, NULL, 0));
    has_read(&reader, "", 100, LENGTH - 100, "");
    /* As long as its sends may take. */
    CHECK_IS(setsockopt(near, SOL_SOCKET, SO_SNDTIMEO, (char *)&milliseconds, sizeof milliseconds), 0);
    while (TransmitFile(near, file, 0, 0, NULL, NULL, 0))
        continue;
    CHECK_IS(GetLastError(), WSAETIMEDOUT);
    closesocket(near);
    closesocket(far);
    CHECK(CloseHandle(plain));
}

typedef struct Waiting {
    SOCKET to;
    DWORD code;
} Waiting;

static DWORD WINAPI transmit_and_wait(LPVOID argument)
{
    Waiting *it = (Waiting *)argument;
    BOOL done = TRUE;
    while (done)
        done = TransmitFile(it->to, file, 0, 0, NULL, NULL, 0);
    it->code = GetLastError();
    return 0;
}

/* It waits for a socket that another thread closes. It does not touch the next socket with the
 * number. */
static void a_call_that_waits_ends_with_its_socket(void)
{
    int way;
    for (way = 0; way < 3; way++) {
        SOCKET near, far, stranger, peer;
        Waiting waiting;
        HANDLE thread;
        int unsent = 0, before = -1;
        char byte;
        tcp_pair(&near, &far);
        tcp_pair(&stranger, &peer);
        waiting.to = near;
        thread = CreateThread(NULL, 0, transmit_and_wait, &waiting, 0, NULL);
        /* Until there is no progress: nobody reads. */
        while (unsent == 0 || unsent != before) {
            before = unsent;
            until_the_others_sleep();
            CHECK_IS(ioctl((int)near, SIOCOUTQ, &unsent), 0);
        }
        if (way == 0) {
            CHECK_IS(closesocket(near), 0);
        } else if (way == 1) {
            CHECK_IS(closesocket(near), 0);
            CHECK_IS(fcntl((int)stranger, F_DUPFD, (int)near), near);
        } else { /* the library learns of nothing */
            CHECK_IS(dup2((int)stranger, (int)near), near);
        }
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK_IS(waiting.code, WSAENOTSOCK);
        set_nonblocking(peer);
        CHECK_SOCKET_ERROR(recv(peer, &byte, 1, 0), WSAEWOULDBLOCK);
        if (way != 0)
            CHECK_IS(close((int)near), 0);
        closesocket(far);
        closesocket(stranger);
        closesocket(peer);
        CHECK(CloseHandle(thread));
    }
}

static void failures_begin_nothing_or_end_it(void)
{
    OVERLAPPED overlapped = at(LENGTH - 10);
    TRANSMIT_FILE_BUFFERS buffers = beside("head", "tail");
    HANDLE other;
    READER reader;
    SOCKET near, far, udp = udp_socket(), unconnected = tcp_socket();
    struct linger at_once;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    /* More than the file has: what there is goes. */
    begin_to_read(&reader, far, 14);
    CHECK_BEGINS(TransmitFile(near, file, 11, 0, &overlapped, &buffers, 0));
    CHECK_FAILED(port, KEY, &overlapped, 14, ERROR_HANDLE_EOF);
    has_read(&reader, "head", LENGTH - 10, 10, "");
    overlapped = at(0);
    CHECK_FALSE(TransmitFile(near, INVALID_HANDLE_VALUE, 0, 0, &overlapped, NULL, 0), ERROR_INVALID_HANDLE);
    CHECK_FALSE(TransmitFile(near, port, 0, 0, &overlapped, NULL, 0), ERROR_INVALID_HANDLE);
    CHECK_FALSE(TransmitFile(near, file, 0x7FFFFFFF, 0, &overlapped, NULL, 0), WSAEINVAL);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, TF_REUSE_SOCKET), WSAEINVAL);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0x1000), WSAEINVAL);
    buffers.Head = NULL;
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, &buffers, 0), WSAEFAULT);
    overlapped.OffsetHigh = 0x80000000u;
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0), ERROR_INVALID_PARAMETER);
    overlapped = at(0);
    other = CreateFileA(name, GENERIC_WRITE, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK_FALSE(TransmitFile(near, other, 0, 0, &overlapped, NULL, 0), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(other));
    other = CreateFileA("/dev/zero", GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK_FALSE(TransmitFile(near, other, 10, 0, &overlapped, NULL, 0), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(other));
    CHECK_FALSE(TransmitFile(unconnected, file, 0, 0, &overlapped, NULL, 0), WSAENOTCONN);
    CHECK_FALSE(TransmitFile(udp, file, 0, 0, &overlapped, NULL, 0), WSAEOPNOTSUPP);
    CHECK_FALSE(TransmitFile(INVALID_SOCKET, file, 0, 0, &overlapped, NULL, 0), WSAENOTSOCK);
    CHECK(is_silent(port));
    /* The peer is gone: an error, and no signal. */
    signal(SIGPIPE, SIG_DFL);
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    CHECK_IS(setsockopt(far, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once), 0);
    CHECK_IS(shutdown(near, SD_SEND), 0);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, NULL, NULL, 0), WSAESHUTDOWN);
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0), WSAESHUTDOWN);
    closesocket(near);
    closesocket(far);
    tcp_pair(&near, &far);
    CHECK_IS(setsockopt(far, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once), 0);
    closesocket(far);
    SetLastError(0);
    CHECK(!TransmitFile(near, file, 0, 0, &overlapped, NULL, 0));
    CHECK(GetLastError() == WSAECONNRESET || GetLastError() == WSAENOTCONN);
    closesocket(near);
    closesocket(udp);
    closesocket(unconnected);
}

/* How many bytes the system holds back, which it has not tried to send. */
static int held_back(SOCKET s)
{
    int bytes = -1;
    CHECK_IS(ioctl((int)s, SIOCOUTQNSD, &bytes), 0);
    return bytes;
}

/* A file with that many bytes of the other one, and a descriptor for truncating it. */
static HANDLE short_file(DWORD length, int *descriptor)
{
    char path[sizeof name + 8];
    DWORD done = 0;
    HANDLE it;
    snprintf(path, sizeof path, "%s-short", name);
    *descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(*descriptor >= 0);
    it = CreateFileA(path, GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0,
                     NULL);
    CHECK(it != INVALID_HANDLE_VALUE);
    CHECK(WriteFile(it, contents, length, &done, NULL) && done == length);
    CHECK_IS(unlink(path), 0);
    return it;
}

/* Makes the system evict a file from memory from there on. Returns whether it did. */
static int evict(int descriptor, off_t from)
{
    char byte;
    struct iovec part;
    part.iov_base = &byte;
    part.iov_len = 1;
    CHECK_IS(fsync(descriptor), 0);
    CHECK_IS(posix_fadvise(descriptor, from, 0, POSIX_FADV_DONTNEED), 0);
    return syscall(SYS_preadv2, descriptor, &part, 1, from, 0, 8 /* RWF_NOWAIT */) < 0 && errno == EAGAIN;
}

/* Sends until the socket takes no more. How many bytes the reader will have when the last operation has ended. */
static size_t fill(SOCKET near, LPOVERLAPPED last)
{
    size_t total = LENGTH;
    *last = at(0);
    while (send_from(near, contents, LENGTH, NULL, last) == 0) {
        CHECK_ENDED(port, KEY, last, LENGTH);
        total += LENGTH;
    }
    CHECK_IS(WSAGetLastError(), WSA_IO_PENDING);
    return total;
}

/* The head is not delayed for bytes that the file does not have. transmit_disk.c has a file that is
 * truncated while the operation waits for the disk. */
static void a_head_goes_at_once_if_no_bytes_follow(void)
{
    TRANSMIT_FILE_BUFFERS buffers = beside("head", "");
    int descriptor, again;
    HANDLE empty = short_file(0, &descriptor);
    OVERLAPPED overlapped = at(0), behind = at(0);
    READER reader;
    SOCKET near, far;
    size_t total;
    /* It is empty; or the operation begins where it ends; or more is asked for than there is. */
    for (again = 0; again < 3; again++) {
        HANDLE it = again == 0 ? empty : file;
        DWORD counted = again == 2 ? 5 : 0;
        overlapped = at(again == 0 ? 0 : LENGTH);
        tcp_pair(&near, &far);
        associate(near, port, KEY);
        CHECK_BEGINS(TransmitFile(near, it, counted, 0, &overlapped, &buffers, 0));
        if (counted == 0)
            CHECK_ENDED(port, KEY, &overlapped, 4);
        else
            CHECK_FAILED(port, KEY, &overlapped, 4, ERROR_HANDLE_EOF);
        CHECK_IS(held_back(near), 0);
        close_both(near, far);
    }
    CHECK(CloseHandle(empty));
    close(descriptor);
    /* A stream that the program has corked stays so. */
    {
        int on = 1, still = 0;
        int size = (int)sizeof still;
        HANDLE it = short_file(1000, &descriptor);
        overlapped = at(0);
        tcp_pair(&near, &far);
        associate(near, port, KEY);
        CHECK_IS(setsockopt(near, IPPROTO_TCP, 3 /* TCP_CORK */, (char *)&on, sizeof on), 0);
        total = fill(near, &behind);
        CHECK_FALSE(TransmitFile(near, it, 0, 0, &overlapped, &buffers, 0), ERROR_IO_PENDING);
        CHECK_IS(ftruncate(descriptor, 0), 0);
        begin_to_read(&reader, far, total + 4);
        CHECK_ENDED(port, KEY, &behind, LENGTH);
        CHECK_ENDED(port, KEY, &overlapped, 4);
        CHECK_IS(getsockopt(near, IPPROTO_TCP, 3, (char *)&still, &size), 0);
        CHECK_IS(still, 1);
        CHECK_IS(WaitForSingleObject(reader.thread, SOON), WAIT_OBJECT_0);
        CHECK(reader.got == total + 4 && memcmp(reader.bytes + total, "head", 4) == 0);
        free(reader.bytes);
        CHECK(CloseHandle(reader.thread));
        close_both(near, far);
        CHECK(CloseHandle(it));
        close(descriptor);
    }
}

/* The file is truncated while the operation waits for the peer: the available data is sent, and the
 * result has its size. */
static void a_file_may_be_cut_off_meanwhile(void)
{
    TRANSMIT_FILE_BUFFERS buffers = beside("head", "tail");
    OVERLAPPED overlapped = at(10), behind;
    int descriptor;
    HANDLE it = short_file(100000, &descriptor);
    READER reader;
    SOCKET near, far;
    size_t total;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    total = fill(near, &behind);
    CHECK_FALSE(TransmitFile(near, it, 90000, 0, &overlapped, &buffers, 0), ERROR_IO_PENDING);
    CHECK_IS(ftruncate(descriptor, 70007), 0);
    CHECK(!HasOverlappedIoCompleted(&overlapped));
    begin_to_read(&reader, far, total + 4 + 69997);
    CHECK_ENDED(port, KEY, &behind, LENGTH);
    CHECK_FAILED(port, KEY, &overlapped, 4 + 69997, ERROR_HANDLE_EOF);
    CHECK_IS(WaitForSingleObject(reader.thread, SOON), WAIT_OBJECT_0);
    CHECK_IS(reader.got, total + 4 + 69997);
    CHECK(memcmp(reader.bytes + total, "head", 4) == 0);
    CHECK(memcmp(reader.bytes + total + 4, contents + 10, 69997) == 0);
    free(reader.bytes);
    CHECK(CloseHandle(reader.thread));
    /* The tail does not follow. */
    CHECK_IS(held_back(near), 0);
    close_both(near, far);
    CHECK(CloseHandle(it));
    close(descriptor);
}

static void the_stream_ends_behind_it(void)
{
    OVERLAPPED overlapped = at(0);
    READER reader;
    struct sockaddr_in address;
    SOCKET near, far, listener, again;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    begin_to_read(&reader, far, LENGTH + 1);
    CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, TF_DISCONNECT));
    CHECK_ENDED(port, KEY, &overlapped, LENGTH);
    has_read(&reader, "", 0, LENGTH, "");
    closesocket(near);
    closesocket(far);
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    begin_to_read(&reader, far, LENGTH + 1);
    CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, TF_DISCONNECT | TF_REUSE_SOCKET));
    CHECK_ENDED(port, KEY, &overlapped, LENGTH);
    has_read(&reader, "", 0, LENGTH, "");
    closesocket(far);
    /* It may be connected again. */
    listener = tcp_socket();
    address = bind_to_loopback(listener);
    CHECK_IS(listen(listener, 1), 0);
    CHECK_IS(connect(near, (struct sockaddr *)&address, sizeof address), 0);
    again = accept(listener, NULL, NULL);
    CHECK(again != INVALID_SOCKET);
    closesocket(again);
    closesocket(listener);
    closesocket(near);
}

/* Both calls return WSA_IO_PENDING, so they make packets even with FILE_SKIP_COMPLETION_PORT_ON_SUCCESS. */
static void a_pending_result_makes_a_packet_whatever_is_set(void)
{
    TRANSMIT_PACKETS_ELEMENT element;
    TRANSMIT_FILE_BUFFERS buffers = beside("head", "");
    OVERLAPPED overlapped = at(0), sending = at(0);
    SOCKET near, far;
    memset(&element, 0, sizeof element);
    element.dwElFlags = TP_ELEMENT_MEMORY;
    element.cLength = 3;
    element.pBuffer = (void *)(uintptr_t)"one";
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    CHECK(SetFileCompletionNotificationModes((HANDLE)near, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    CHECK_IS(send_from(near, "x", 1, NULL, &sending), 0);
    CHECK(is_silent(port));
    CHECK_BEGINS(TransmitFile(near, NULL, 0, 0, &overlapped, &buffers, 0));
    CHECK_ENDED(port, KEY, &overlapped, 4);
    CHECK_BEGINS(TransmitPackets(near, &element, 1, 0, &overlapped, 0));
    CHECK_ENDED(port, KEY, &overlapped, 3);
    CHECK_BEGINS(TransmitFile(near, NULL, 0, 0, &overlapped, NULL, TF_DISCONNECT));
    CHECK_ENDED(port, KEY, &overlapped, 0);
    close_both(near, far);
}

static void packets_are_memory_and_files(void)
{
    TRANSMIT_PACKETS_ELEMENT elements[4];
    GUID transmit_guid = WSAID_TRANSMITFILE, packets_guid = WSAID_TRANSMITPACKETS;
    LPFN_TRANSMITFILE transmit = NULL;
    LPFN_TRANSMITPACKETS transmit_packets = NULL;
    OVERLAPPED overlapped = at(0);
    READER reader;
    SOCKET near, far;
    DWORD bytes;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    CHECK_IS(WSAIoctl(near, SIO_GET_EXTENSION_FUNCTION_POINTER, &transmit_guid, sizeof transmit_guid, &transmit,
                      sizeof transmit, &bytes, NULL, NULL), 0);
    CHECK_IS(WSAIoctl(near, SIO_GET_EXTENSION_FUNCTION_POINTER, &packets_guid, sizeof packets_guid,
                      &transmit_packets, sizeof transmit_packets, &bytes, NULL, NULL), 0);
    memset(elements, 0, sizeof elements);
    elements[0].dwElFlags = TP_ELEMENT_MEMORY;
    elements[0].cLength = 3;
    elements[0].pBuffer = (void *)(uintptr_t)"one";
    elements[1].dwElFlags = TP_ELEMENT_FILE;
    elements[1].hFile = file;
    elements[1].nFileOffset.QuadPart = 5;
    elements[1].cLength = 100000;
    elements[2].dwElFlags = TP_ELEMENT_FILE | TP_ELEMENT_EOP;
    elements[2].hFile = file;
    elements[2].nFileOffset.QuadPart = 100005;
    elements[3].dwElFlags = TP_ELEMENT_MEMORY;
    elements[3].cLength = 4;
    elements[3].pBuffer = (void *)(uintptr_t)"last";
    begin_to_read(&reader, far, LENGTH + 2);
    CHECK_BEGINS(transmit_packets(near, elements, 4, 0, &overlapped, 0));
    CHECK_ENDED(port, KEY, &overlapped, LENGTH + 2);
    has_read(&reader, "one", 5, LENGTH - 5, "last");
    begin_to_read(&reader, far, 10);
    overlapped = at(7);
    CHECK_BEGINS(transmit(near, file, 10, 0, &overlapped, NULL, 0));
    CHECK_ENDED(port, KEY, &overlapped, 10);
    has_read(&reader, "", 7, 10, "");
    elements[1].dwElFlags = 3;
    CHECK_FALSE(transmit_packets(near, elements, 2, 0, &overlapped, 0), WSAEINVAL);
    CHECK_FALSE(transmit_packets(near, NULL, 2, 0, &overlapped, 0), WSAEFAULT);
    closesocket(near);
    closesocket(far);
}

/* Uncached data is read from the disk meanwhile. Sent data of a file may stay in memory: uses a new
 * file each time. */
static void a_file_that_is_not_in_the_cache_goes_too(void)
{
    OVERLAPPED overlapped = at(0);
    int again, was_evicted = 1;
    READER reader;
    SOCKET near, far;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    for (again = 0; again < 3; again++) {
        int descriptor;
        HANDLE it = short_file(LENGTH, &descriptor);
        /* Everything, or the rest after a page of the largest size. */
        was_evicted &= evict(descriptor, again == 1 ? 2 << 20 : 0);
        begin_to_read(&reader, far, LENGTH);
        CHECK_BEGINS(TransmitFile(near, it, 0, 0, &overlapped, NULL, 0));
        CHECK_ENDED(port, KEY, &overlapped, LENGTH);
        has_read(&reader, "", 0, LENGTH, "");
        CHECK(CloseHandle(it));
        close(descriptor);
    }
    if (!was_evicted)
        printf("SKIPPED %s: this file system does not let go of a file in memory\n", __func__);
    /* The file may be closed meanwhile. */
    begin_to_read(&reader, far, LENGTH);
    CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0));
    CHECK(CloseHandle(file));
    CHECK_ENDED(port, KEY, &overlapped, LENGTH);
    has_read(&reader, "", 0, LENGTH, "");
    closesocket(near);
    closesocket(far);
}

enum { MUCH = 200000 };

/* The number of socket descriptors in the process. */
static int count_sockets(void)
{
    DIR *all = opendir("/proc/self/fd");
    const struct dirent *one;
    int count = 0;
    CHECK(all != NULL);
    while ((one = readdir(all)) != NULL) {
        struct stat about;
        if (one->d_name[0] != '.' && fstat(atoi(one->d_name), &about) == 0)
            count += S_ISSOCK(about.st_mode);
    }
    CHECK_IS(closedir(all), 0);
    return count;
}

/* Whether the process has a thread of this name. */
static int has_thread(const char *wanted)
{
    DIR *threads = opendir("/proc/self/task");
    const struct dirent *thread;
    int has = 0;
    CHECK(threads != NULL);
    while ((thread = readdir(threads)) != NULL) {
        char path[sizeof thread->d_name + 32], text[32] = "";
        FILE *of_thread;
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", thread->d_name);
        of_thread = fopen(path, "r");
        if (of_thread == NULL)
            continue;
        if (fgets(text, sizeof text, of_thread) != NULL)
            has |= strncmp(text, wanted, strlen(wanted)) == 0;
        CHECK_IS(fclose(of_thread), 0);
    }
    CHECK_IS(closedir(threads), 0);
    return has;
}

/* Waits until no former connection remains. */
static void until_none_lingers(int sockets)
{
    ULONGLONG began = GetTickCount64();
    while (count_sockets() > sockets || has_thread("cp-linger")) {
        CHECK(GetTickCount64() - began < SOON);
        Sleep(1);
    }
}

/* Ends a stream after MUCH bytes, in one of three ways, with an operation or a blocking call. */
static void send_and_disconnect(SOCKET near, int way, int waits, int reuses)
{
    OVERLAPPED overlapped = at(0), sending = at(0);
    LPOVERLAPPED how = waits ? NULL : &overlapped;
    DWORD sent = 0, flags = TF_DISCONNECT | (reuses ? TF_REUSE_SOCKET : 0);
    TRANSMIT_FILE_BUFFERS buffers;
    TRANSMIT_PACKETS_ELEMENT element;
    BOOL done;
    if (way == 0) {
        CHECK_IS(send_from(near, contents, MUCH, &sent, &sending), 0);
        CHECK_ENDED(port, KEY, &sending, MUCH);
        done = DisconnectEx(near, how, reuses ? TF_REUSE_SOCKET : 0, 0);
        sent = 0;
    } else if (way == 1) {
        memset(&buffers, 0, sizeof buffers);
        buffers.Head = contents;
        buffers.HeadLength = sent = MUCH;
        done = TransmitFile(near, NULL, 0, 0, how, &buffers, flags);
    } else {
        memset(&element, 0, sizeof element);
        element.dwElFlags = TP_ELEMENT_MEMORY;
        element.cLength = sent = MUCH;
        element.pBuffer = contents;
        done = TransmitPackets(near, &element, 1, 0, how, flags);
    }
    CHECK_IS(done, waits);
    if (!waits) {
        CHECK_IS(GetLastError(), WSA_IO_PENDING);
        CHECK_ENDED(port, KEY, &overlapped, sent);
    }
}

/* Makes a pair. The system accepts MUCH bytes from the first end, and the other end has little room. */
static void pair_with_room(SOCKET *near, SOCKET *far)
{
    int much = MUCH * 4, little = 16384;
    struct sockaddr_in address;
    SOCKET listener = tcp_listener(&address);
    *far = tcp_socket();
    CHECK_IS(setsockopt(*far, SOL_SOCKET, SO_RCVBUF, (char *)&little, sizeof little), 0);
    CHECK_IS(connect(*far, (struct sockaddr *)&address, sizeof address), 0);
    *near = (SOCKET)accept(listener, NULL, NULL);
    CHECK(*near != INVALID_SOCKET);
    CHECK_IS(setsockopt(*near, SOL_SOCKET, SO_SNDBUF, (char *)&much, sizeof much), 0);
    CHECK_IS(closesocket(listener), 0);
    associate(*near, port, KEY);
}

/* Reads everything the other end has sent, and sends some data before and in between. */
static void read_while_sending(SOCKET far)
{
    static char bytes[MUCH];
    int got = 0;
    while (got < MUCH) {
        ssize_t part;
        send_all(far, "something", 9);
        part = recv(far, bytes + got, 8192 < MUCH - got ? 8192 : (size_t)(MUCH - got), 0);
        CHECK(part > 0);
        got += (int)part;
    }
    CHECK(memcmp(bytes, contents, MUCH) == 0);
    send_all(far, "something", 9);
    CHECK_IS(recv(far, bytes, 1, 0), 0);
}

/* The peer gets everything, even if it sends meanwhile. Without TF_REUSE_SOCKET, the socket
 * receives the peer's data. */
static void a_peer_that_goes_on_sending_gets_everything(void)
{
    int way, waits, reuses, before = count_sockets();
    for (way = 0; way < 3; way++)
        for (waits = 0; waits < 2; waits++)
            for (reuses = 0; reuses < 2; reuses++) {
                SOCKET near, far, again, listener;
                struct sockaddr_in address;
                char bytes[9];
                OVERLAPPED overlapped = at(0);
                pair_with_room(&near, &far);
                send_all(far, "something", 9);
                until(near, POLLIN); /* the data is still unread when the stream ends */
                if (!reuses) {
                    CHECK_IS(receive_into(near, bytes, 9, NULL, &overlapped), 0);
                    CHECK_ENDED(port, KEY, &overlapped, 9);
                }
                send_and_disconnect(near, way, waits, reuses);
                if (reuses) { /* the socket can be used meanwhile */
                    listener = tcp_listener(&address);
                    CHECK_IS(connect(near, (struct sockaddr *)&address, sizeof address), 0);
                    again = (SOCKET)accept(listener, NULL, NULL);
                    send_all(again, "x", 1);
                    receive_all(near, bytes, 1);
                    close_both(again, listener);
                } else {
                    CHECK_SOCKET_ERROR(send_from(near, "x", 1, NULL, &overlapped), WSAESHUTDOWN);
                }
                read_while_sending(far);
                if (!reuses) {
                    receive_all(near, bytes, 9);
                    CHECK(memcmp(bytes, "something", 9) == 0);
                }
                close_both(far, near);
            }
    until_none_lingers(before);
}

/* A process keeps few former connections, and a forked child none. All sent data arrives anyway. */
static void former_connections_are_few(void)
{
    enum { COUNT = 24, LIMIT = 128 };
    SOCKET far[COUNT];
    struct rlimit before, few;
    int place, sockets = count_sockets(), status;
    static char bytes[MUCH];
    pid_t child;
    for (place = 0; place < COUNT; place++) {
        SOCKET near;
        pair_with_room(&near, &far[place]);
        send_and_disconnect(near, 0, 0, 1);
        closesocket(near);
    }
    CHECK(count_sockets() >= sockets + 2 * COUNT);
    child = fork_at_rest();
    if (child == 0) {
        CHECK_IS(count_sockets(), sockets + COUNT);
        if (is_slow()) /* Valgrind would report memory of threads that do not exist here */
            execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* A quarter of the process's limit. */
    CHECK_IS(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = LIMIT;
    CHECK_IS(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (place = 0; place < COUNT; place++) {
        SOCKET near;
        closesocket(far[place]);
        pair_with_room(&near, &far[place]);
        send_and_disconnect(near, 0, 0, 1);
        closesocket(near);
    }
    CHECK_IS(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK(count_sockets() <= sockets + COUNT + LIMIT / 4);
    for (place = 0; place < COUNT; place++) {
        receive_all(far[place], bytes, MUCH);
        CHECK(memcmp(bytes, contents, MUCH) == 0);
        CHECK_IS(recv(far[place], bytes, 1, 0), 0);
        closesocket(far[place]);
    }
    until_none_lingers(sockets);
}

int main(void)
{
    DWORD done;
    HANDLE plain;
    size_t place;
    start();
    snprintf(name, sizeof name, "/tmp/cp-transmit-%d", (int)getpid());
    contents = (char *)malloc(LENGTH);
    CHECK(contents != NULL);
    for (place = 0; place < LENGTH; place++)
        contents[place] = byte_at(place);
    plain = CreateFileA(name, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(WriteFile(plain, contents, LENGTH, &done, NULL) && done == LENGTH);
    CHECK(CloseHandle(plain));
    file = CreateFileA(name, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING,
                       FILE_FLAG_OVERLAPPED | FILE_FLAG_SEQUENTIAL_SCAN, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    CHECK(port != NULL);
    a_file_goes_whole_with_what_is_beside_it();
    it_goes_on_as_the_peer_reads();
    a_call_without_an_overlapped_waits();
    a_call_that_waits_ends_with_its_socket();
    failures_begin_nothing_or_end_it();
    a_head_goes_at_once_if_no_bytes_follow();
    a_file_may_be_cut_off_meanwhile();
    the_stream_ends_behind_it();
    a_pending_result_makes_a_packet_whatever_is_set();
    packets_are_memory_and_files();
    a_peer_that_goes_on_sending_gets_everything();
    former_connections_are_few();
    a_file_that_is_not_in_the_cache_goes_too();
    CHECK(CloseHandle(port) && DeleteFileA(name));
    free(contents);
    return finish();
}
