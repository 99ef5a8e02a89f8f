/* Files with an OVERLAPPED: packets, immediate and later ones, GetOverlappedResult, events, and the
 * handle; ways to end operations; and sockets, which are read and written in the same way. */
#include <winsock2.h>
#include <windows.h>

#include <sys/stat.h>
#include <sys/wait.h>

#include "check.h"
#include "files.h"
#include "filters.h"
#include "overlapped.h"

#define KEY 42u
#define END_OF_FILE 0xC0000011u

static char name[64], pipe_name[64];
static HANDLE port;

static HANDLE opens(const char *path, DWORD access, DWORD disposition, DWORD flags)
{
    HANDLE file = CreateFileA(path, access, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, disposition,
                              FILE_FLAG_OVERLAPPED | flags, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static HANDLE opens_on_port(const char *path, DWORD access, DWORD disposition, DWORD flags)
{
    HANDLE file = opens(path, access, disposition, flags);
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
    return file;
}

/* A pipe of which a read waits: both of its ends are this process's. */
static HANDLE opens_pipe(void)
{
    return opens(pipe_name, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING, 0);
}

static OVERLAPPED at(ULONGLONG place, HANDLE event)
{
    OVERLAPPED overlapped = fresh(event);
    overlapped.Offset = (DWORD)place;
    overlapped.OffsetHigh = (DWORD)(place >> 32);
    return overlapped;
}

/* The call has started an operation, which may have finished: it makes a packet either way. */
static void begun(const char *file, int line, BOOL done)
{
    if (!done)
        check_same(file, line, "the code", GetLastError(), "it goes on", ERROR_IO_PENDING);
}
#define CHECK_BEGUN(call) (SetLastError(0), begun(__FILE__, __LINE__, (call)))
#define CHECK_GOES_ON(call) CHECK_FALSE(call, ERROR_IO_PENDING)

/* Makes no packets. Writes page by page: a kernel may keep the data of one call in one piece, and
 * then evicts all or none of it. */
static void fill(HANDLE file, size_t size)
{
    enum { PAGE = 4096 };
    char bytes[PAGE];
    size_t from;
    for (from = 0; from < size; from += PAGE) {
        size_t count = size - from < sizeof bytes ? size - from : sizeof bytes, place;
        OVERLAPPED overlapped = at(from, (HANDLE)(uintptr_t)1);
        DWORD done = UNTOUCHED;
        for (place = 0; place < count; place++)
            bytes[place] = (char)((from + place) * 7 + (from + place) / 251);
        CHECK_BEGUN(WriteFile(file, bytes, (DWORD)count, NULL, &overlapped));
        CHECK(GetOverlappedResult(file, &overlapped, &done, TRUE));
        CHECK_IS(done, count);
    }
}

static int is_filled(const char *bytes, size_t from, size_t size)
{
    size_t place;
    for (place = from; place < from + size; place++)
        if (*bytes++ != (char)(place * 7 + place / 251))
            return 0;
    return 1;
}

/* Threads do the work then, unless the environment asks for nothing but a ring. */
static void where_there_is_no_ring_the_environment_decides(void)
{
    pid_t child = fork_at_rest();
    int status;
    if (child == 0) {
        HANDLE file, own = new_port(1);
        OVERLAPPED overlapped = at(0, NULL);
        char byte;
        if (!refuse_calls(SYS_io_uring_setup, SYS_io_uring_setup, ENOSYS)) {
            printf("SKIPPED %s: the system does not refuse a ring here\n", __func__);
            fflush(stdout);
            _exit(0);
        }
        file = opens(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0);
        CHECK(CreateIoCompletionPort(file, own, KEY, 0) == own);
        CHECK_IS(setenv("COMPLETION_PORT_FILES", "ring", 1), 0);
        overlapped.Internal = 77;
        CHECK_FALSE(WriteFile(file, "x", 1, NULL, &overlapped), ERROR_NOT_SUPPORTED);
        CHECK_FALSE(ReadFile(file, &byte, 1, NULL, &overlapped), ERROR_NOT_SUPPORTED);
        CHECK_IS(overlapped.Internal, 77);
        CHECK(is_silent(own));
        CHECK_IS(unsetenv("COMPLETION_PORT_FILES"), 0);
        CHECK_GOES_ON(WriteFile(file, "x", 1, NULL, &overlapped));
        CHECK_ENDED(own, KEY, &overlapped, 1);
        CHECK(CloseHandle(file) && CloseHandle(own));
        _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
}

static void packets_tell_of_reads_and_writes(void)
{
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0);
    OVERLAPPED one = at(0, NULL), two = at(3, NULL);
    char bytes[16];
    DWORD done = UNTOUCHED;
    CHECK_GOES_ON(WriteFile(file, "abcdef", 6, &done, &one));
    CHECK_IS(done, 0);
    CHECK_ENDED(port, KEY, &one, 6);
    CHECK(one.Internal == 0 && one.InternalHigh == 6);
    /* Cached data is read immediately, and a packet reports it. */
    CHECK_BEGUN(ReadFile(file, bytes, 2, &done, &two));
    CHECK_ENDED(port, KEY, &two, 2);
    CHECK(memcmp(bytes, "de", 2) == 0);
    /* Fewer than there is room for, at the end. */
    two = at(4, NULL);
    CHECK_BEGUN(ReadFile(file, bytes, sizeof bytes, NULL, &two));
    CHECK_ENDED(port, KEY, &two, 2);
    /* Nothing of nothing. */
    two = at(100, NULL);
    CHECK(ReadFile(file, NULL, 0, &done, &two));
    CHECK_ENDED(port, KEY, &two, 0);
    CHECK(WriteFile(file, NULL, 0, &done, &two));
    CHECK_ENDED(port, KEY, &two, 0);
    /* After the end, wherever that is. */
    one = at(0xFFFFFFFFFFFFFFFFu, NULL);
    CHECK_GOES_ON(WriteFile(file, "gh", 2, NULL, &one));
    CHECK_ENDED(port, KEY, &one, 2);
    two = at(5, NULL);
    CHECK_BEGUN(ReadFile(file, bytes, sizeof bytes, &done, &two));
    CHECK_ENDED(port, KEY, &two, 3);
    CHECK(memcmp(bytes, "fgh", 3) == 0);
    /* Beyond four gigabytes. */
    one = at(0x100000001u, NULL);
    CHECK_GOES_ON(WriteFile(file, "far", 3, NULL, &one));
    CHECK_ENDED(port, KEY, &one, 3);
    two = at(0x100000000u, NULL);
    CHECK_BEGUN(ReadFile(file, bytes, sizeof bytes, &done, &two));
    CHECK_ENDED(port, KEY, &two, 4);
    CHECK(memcmp(bytes, "\0far", 4) == 0);
    CHECK(is_silent(port));
    CHECK(CloseHandle(file));
}

/* The call or the packet reports the same code. */
static void fails(const char *where, int line, HANDLE file, BOOL done, LPOVERLAPPED overlapped, DWORD code)
{
    DWORD count = UNTOUCHED;
    check_same(where, line, "the call", done, "a failure", FALSE);
    if (GetLastError() == ERROR_IO_PENDING) {
        failed_at(where, line, port, KEY, overlapped, 0, code);
    } else {
        check_same(where, line, "the code", GetLastError(), "why it has failed", code);
        CHECK(is_silent(port));
    }
    SetLastError(0);
    CHECK(!GetOverlappedResult(file, overlapped, &count, FALSE));
    check_same(where, line, "the code of the result", GetLastError(), "why it has failed", code);
}
#define CHECK_FAILS(file, call, overlapped, code) \
    (SetLastError(0), fails(__FILE__, __LINE__, (file), (call), (overlapped), (code)))

static void failures_have_the_codes_of_the_reference(void)
{
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0), other;
    OVERLAPPED overlapped = at(0, NULL);
    char byte;
    DWORD done = UNTOUCHED;
    CHECK_FAILS(file, ReadFile(file, &byte, 1, &done, &overlapped), &overlapped, ERROR_HANDLE_EOF);
    CHECK_IS(overlapped.Internal, END_OF_FILE);
    CHECK_IS(overlapped.InternalHigh, 0);
    overlapped = at(1000, NULL);
    CHECK_FAILS(file, ReadFile(file, &byte, 1, &done, &overlapped), &overlapped, ERROR_HANDLE_EOF);
    /* Nothing is started, and the OVERLAPPED is not touched. */
    overlapped = at(0, NULL);
    overlapped.Internal = 77;
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(WriteFile(file, &byte, 1, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(ReadFile(file, NULL, 1, &done, &overlapped), ERROR_NOACCESS);
    overlapped.OffsetHigh = 0x80000000u;
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, &overlapped), ERROR_INVALID_PARAMETER);
    overlapped.OffsetHigh = overlapped.Offset = 0xFFFFFFFFu;
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, &overlapped), ERROR_INVALID_PARAMETER);
    overlapped = at(0, port);
    overlapped.Internal = 77;
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, &overlapped), ERROR_INVALID_HANDLE);
    CHECK_IS(overlapped.Internal, 77);
    overlapped = at(0, NULL);
    CHECK_FALSE(ReadFile(INVALID_HANDLE_VALUE, &byte, 1, &done, &overlapped), ERROR_INVALID_HANDLE);
    CHECK(CloseHandle(file));
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, &overlapped), ERROR_INVALID_HANDLE);
    other = opens_on_port("/dev/full", GENERIC_WRITE, OPEN_EXISTING, 0);
    overlapped = at(0, NULL);
    CHECK_FAILS(other, WriteFile(other, "x", 1, &done, &overlapped), &overlapped, ERROR_DISK_FULL);
    CHECK_IS(overlapped.Internal, 0xC000007Fu);
    CHECK_FALSE(ReadFile(other, &byte, 1, &done, &overlapped), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(other));
    other = opens_on_port("/proc/self/mem", GENERIC_READ, OPEN_EXISTING, 0);
    overlapped = at(0, NULL);
    CHECK_FAILS(other, ReadFile(other, &byte, 1, &done, &overlapped), &overlapped, ERROR_IO_DEVICE);
    CHECK_IS(overlapped.Internal, 0xC0000185u);
    CHECK_FALSE(WriteFile(other, &byte, 1, &done, &overlapped), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(other));
    other = opens_on_port("/tmp", GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    overlapped = at(0, NULL);
    CHECK_FAILS(other, ReadFile(other, &byte, 1, &done, &overlapped), &overlapped, ERROR_INVALID_FUNCTION);
    CHECK(CloseHandle(other));
}

/* Immediate successes then make no packets; operations that continue make one. */
static void packets_of_successes_at_once_can_be_spared(void)
{
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0);
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    OVERLAPPED overlapped = at(0, event);
    char bytes[8];
    DWORD done = UNTOUCHED;
    CHECK_FALSE(SetFileCompletionNotificationModes(file, 0x8), ERROR_INVALID_PARAMETER);
    CHECK(SetFileCompletionNotificationModes(file, FILE_SKIP_COMPLETION_PORT_ON_SUCCESS));
    CHECK(SetFileCompletionNotificationModes(file, FILE_SKIP_SET_EVENT_ON_HANDLE));
    fill(file, 8);
    SetLastError(0);
    if (ReadFile(file, bytes, 8, &done, &overlapped)) {
        CHECK_IS(done, 8);
        CHECK(overlapped.Internal == 0 && overlapped.InternalHigh == 8);
        CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
        CHECK(is_silent(port));
    } else { /* a file system that cannot report what is cached */
        CHECK_IS(GetLastError(), ERROR_IO_PENDING);
        CHECK_ENDED(port, KEY, &overlapped, 8);
    }
    CHECK(is_filled(bytes, 0, 8));
    CHECK_GOES_ON(WriteFile(file, bytes, 8, &done, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, 8);
    CHECK_IS(WaitForSingleObject(file, 0), WAIT_TIMEOUT);
    CHECK(CloseHandle(file) && CloseHandle(event));
}

static void without_a_port_results_and_events_tell(void)
{
    enum { COUNT = 8, SIZE = 4096 };
    static char bytes[COUNT][SIZE];
    HANDLE file = opens(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0), events[COUNT], other;
    OVERLAPPED overlapped[COUNT];
    DWORD done = UNTOUCHED;
    int place;
    fill(file, COUNT * SIZE);
    for (place = 0; place < COUNT; place++) {
        events[place] = CreateEventA(NULL, TRUE, TRUE, NULL);
        overlapped[place] = at((ULONGLONG)place * SIZE, events[place]);
        CHECK_BEGUN(ReadFile(file, bytes[place], SIZE, NULL, &overlapped[place]));
    }
    CHECK_IS(WaitForMultipleObjects(COUNT, events, TRUE, SOON), WAIT_OBJECT_0);
    for (place = 0; place < COUNT; place++) {
        CHECK(GetOverlappedResult(file, &overlapped[place], &done, FALSE));
        CHECK_IS(done, SIZE);
        CHECK(is_filled(bytes[place], (size_t)place * SIZE, SIZE));
        CHECK(CloseHandle(events[place]));
    }
    /* Operations without an event signal the handle. */
    overlapped[0] = at(0, NULL);
    CHECK_BEGUN(WriteFile(file, bytes[0], SIZE, NULL, &overlapped[0]));
    CHECK_IS(WaitForSingleObject(file, SOON), WAIT_OBJECT_0);
    CHECK(HasOverlappedIoCompleted(&overlapped[0]));
    CHECK(GetOverlappedResultEx(file, &overlapped[0], &done, 0, FALSE));
    CHECK_IS(done, SIZE);
    CHECK(CloseHandle(file));
    other = opens_pipe();
    overlapped[0] = at(0, NULL);
    CHECK_GOES_ON(ReadFile(other, bytes[0], SIZE, &done, &overlapped[0]));
    CHECK_FALSE(GetOverlappedResult(other, &overlapped[0], &done, FALSE), ERROR_IO_INCOMPLETE);
    CHECK_FALSE(GetOverlappedResultEx(other, &overlapped[0], &done, 5, FALSE), WAIT_TIMEOUT);
    CHECK_IS(WaitForSingleObject(other, 0), WAIT_TIMEOUT);
    /* The same OVERLAPPED again is found out. */
    CHECK_FALSE(ReadFile(other, bytes[1], SIZE, &done, &overlapped[0]), ERROR_INVALID_PARAMETER);
    overlapped[1] = at(0, NULL);
    CHECK_GOES_ON(WriteFile(other, "tell", 4, &done, &overlapped[1]));
    CHECK(GetOverlappedResult(other, &overlapped[0], &done, TRUE));
    CHECK_IS(done, 4);
    CHECK(memcmp(bytes[0], "tell", 4) == 0);
    CHECK(GetOverlappedResult(other, &overlapped[1], &done, TRUE));
    until_ended(&overlapped[1]);
    CHECK(CloseHandle(other));
}

static void the_low_bit_of_an_event_suppresses_the_packet(void)
{
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0);
    HANDLE event = CreateEventA(NULL, FALSE, FALSE, NULL);
    OVERLAPPED overlapped = at(0, (HANDLE)((uintptr_t)event | 1));
    char byte;
    DWORD done = UNTOUCHED;
    CHECK_GOES_ON(WriteFile(file, "x", 1, &done, &overlapped));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(GetOverlappedResult(file, &overlapped, &done, FALSE));
    CHECK_IS(done, 1);
    overlapped = at(0, (HANDLE)((uintptr_t)event | 1));
    CHECK_BEGUN(ReadFile(file, &byte, 1, NULL, &overlapped));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(is_silent(port));
    CHECK(CloseHandle(file));
    CHECK(CloseHandle(event));
}

/* No thread waits on the port: the operation ends, and its packet is queued. */
static void operations_end_though_no_thread_waits(void)
{
    HANDLE file = opens_on_port(name, GENERIC_WRITE, CREATE_ALWAYS, 0);
    OVERLAPPED overlapped = at(0, NULL);
    CHECK_GOES_ON(WriteFile(file, "x", 1, NULL, &overlapped));
    until_ended(&overlapped);
    CHECK_IS(overlapped.InternalHigh, 1);
    CHECK_ENDED(port, KEY, &overlapped, 1);
    CHECK(CloseHandle(file));
    CHECK(is_silent(port));
}

/* Calls ignore the two lowest bits of a handle. In hEvent the lowest bit has its usual meaning. */
static void the_lowest_bits_of_a_handle_are_the_programs_own(void)
{
    unsigned tag;
    for (tag = 1; tag < 4; tag++) {
        HANDLE file = opens(name, GENERIC_READ | GENERIC_WRITE, OPEN_EXISTING, 0);
        HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
        HANDLE it = (HANDLE)((uintptr_t)file | tag), waited = (HANDLE)((uintptr_t)event | tag);
        OVERLAPPED overlapped = at(0, waited);
        char bytes[8];
        DWORD done;
        LARGE_INTEGER size;
        CHECK(CreateIoCompletionPort(it, (HANDLE)((uintptr_t)port | tag), KEY, 0) != NULL);
        CHECK_BEGUN(WriteFile(it, "contents", 8, NULL, &overlapped));
        CHECK_IS(WaitForSingleObject(waited, SOON), WAIT_OBJECT_0);
        CHECK(GetOverlappedResult(it, &overlapped, &done, TRUE));
        CHECK_IS(done, 8);
        if (!(tag & 1))
            CHECK_ENDED(port, KEY, &overlapped, 8);
        CHECK(is_silent(port));
        CHECK_BEGUN(ReadFile(it, bytes, 8, NULL, &overlapped));
        CHECK(GetOverlappedResultEx(it, &overlapped, &done, SOON, FALSE));
        if (!(tag & 1))
            CHECK_ENDED(port, KEY, &overlapped, 8);
        CHECK(SetFileCompletionNotificationModes(it, FILE_SKIP_SET_EVENT_ON_HANDLE));
        CHECK_FALSE(CancelIoEx(it, NULL), ERROR_NOT_FOUND);
        CHECK(CancelIo(it));
        CHECK(FlushFileBuffers(it) && GetFileSizeEx(it, &size) && size.QuadPart >= 8);
        CHECK_IS(GetFileType(it), FILE_TYPE_DISK);
        CHECK(CloseHandle(it) && CloseHandle(waited));
        CHECK_FALSE(CloseHandle(file), ERROR_INVALID_HANDLE);
    }
}

/* A file's association also applies to operations in flight. */
static void an_association_counts_for_what_is_in_flight(void)
{
    HANDLE file = opens_pipe(), event = CreateEventA(NULL, TRUE, FALSE, NULL);
    OVERLAPPED first = at(0, NULL), without = at(0, (HANDLE)((uintptr_t)event | 1)), behind = at(0, NULL);
    OVERLAPPED write = at(0, (HANDLE)(uintptr_t)1);
    char bytes[3];
    CHECK_GOES_ON(ReadFile(file, &bytes[0], 1, NULL, &first));
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
    CHECK_BEGUN(WriteFile(file, "a", 1, NULL, &write));
    CHECK_ENDED(port, KEY, &first, 1);
    until_ended(&write);
    CHECK_GOES_ON(ReadFile(file, &bytes[1], 1, NULL, &without));
    CHECK_BEGUN(WriteFile(file, "b", 1, NULL, &write));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    until_ended(&write);
    CHECK(is_silent(port));
    CHECK_GOES_ON(ReadFile(file, &bytes[2], 1, NULL, &behind));
    CHECK_BEGUN(WriteFile(file, "c", 1, NULL, &write));
    CHECK_ENDED(port, KEY, &behind, 1);
    until_ended(&write);
    CHECK(CloseHandle(file));
    CHECK(CloseHandle(event));
}

static DWORD WINAPI begins_a_read(LPVOID argument)
{
    static char byte;
    LPOVERLAPPED *of_thread = (LPOVERLAPPED *)argument;
    CHECK_GOES_ON(ReadFile((HANDLE)of_thread[0], &byte, 1, NULL, of_thread[1]));
    return 0;
}

static void what_is_cancelled_ends_once(void)
{
    HANDLE file = opens_pipe(), thread;
    OVERLAPPED mine = at(0, NULL), others = at(0, NULL);
    LPOVERLAPPED of_thread[2];
    char byte;
    DWORD done = UNTOUCHED;
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
    CHECK_FALSE(CancelIoEx(file, NULL), ERROR_NOT_FOUND);
    CHECK_FALSE(CancelIoEx(file, &mine), ERROR_NOT_FOUND);
    CHECK(CancelIo(file));
    if (ends_early(__func__)) {
        CHECK_GOES_ON(ReadFile(file, &byte, 1, &done, &mine));
        CHECK(CancelIoEx(file, &mine));
        CHECK_FAILED(port, KEY, &mine, 0, ERROR_OPERATION_ABORTED);
        CHECK_IS(mine.Internal, CANCELLED);
        CHECK_FALSE(GetOverlappedResult(file, &mine, &done, TRUE), ERROR_OPERATION_ABORTED);
        CHECK_FALSE(CancelIoEx(file, &mine), ERROR_NOT_FOUND);
        /* CancelIo: those of the calling thread. */
        of_thread[0] = (LPOVERLAPPED)file;
        of_thread[1] = &others;
        thread = CreateThread(NULL, 0, begins_a_read, of_thread, 0, NULL);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(CloseHandle(thread));
        CHECK_GOES_ON(ReadFile(file, &byte, 1, &done, &mine));
        CHECK(CancelIo(file));
        CHECK_FAILED(port, KEY, &mine, 0, ERROR_OPERATION_ABORTED);
        CHECK_FALSE(GetOverlappedResult(file, &others, &done, FALSE), ERROR_IO_INCOMPLETE);
        CHECK(CancelIoEx(file, NULL));
        CHECK_FAILED(port, KEY, &others, 0, ERROR_OPERATION_ABORTED);
    }
    CHECK(is_silent(port));
    CHECK(CloseHandle(file));
    CHECK_FALSE(CancelIoEx(file, NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(CancelIo(file), ERROR_INVALID_HANDLE);
}

/* Without a ring, a read of a pipe that a thread has started cannot be cancelled. One that has not
 * started can, and operations on a disk continue in parallel. */
static void what_a_thread_has_begun_it_does_to_its_end(void)
{
    enum { THREADS = 8 };
    HANDLE file, other;
    OVERLAPPED reads[THREADS + 1], write = at(0, NULL);
    char bytes[THREADS + 1];
    DWORD done;
    ULONG_PTR key;
    LPOVERLAPPED which;
    int place, end;
    end = open(pipe_name, O_RDWR);
    CHECK(end >= 0);
    file = opens_pipe();
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
    for (place = 0; place <= THREADS; place++) {
        reads[place] = at(0, NULL);
        CHECK_GOES_ON(ReadFile(file, &bytes[place], 1, NULL, &reads[place]));
    }
    until_the_others_sleep();
    CHECK(CancelIoEx(file, NULL));
    CHECK_FAILED(port, KEY, &reads[THREADS], 0, ERROR_OPERATION_ABORTED);
    CHECK(CloseHandle(file));
    CHECK(is_silent(port));
    other = opens_on_port(name, GENERIC_WRITE, CREATE_ALWAYS, 0);
    CHECK_GOES_ON(WriteFile(other, "x", 1, NULL, &write));
    CHECK_ENDED(port, KEY, &write, 1);
    CHECK(CloseHandle(other));
    CHECK_IS(syscall(SYS_write, end, "12345678", THREADS), THREADS);
    for (place = 0; place < THREADS; place++) {
        CHECK(GetQueuedCompletionStatus(port, &done, &key, &which, SOON));
        CHECK(done == 1 && key == KEY && which->Internal == 0);
    }
    CHECK(is_silent(port));
    CHECK_IS(close(end), 0);
}

/* A closed file stays open for its operations. Those that might never end, reads of a pipe, are
 * cancelled. */
static void closing_a_handle_loses_nothing(void)
{
    enum { COUNT = 32, SIZE = 65536 };
    static char bytes[SIZE];
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, FILE_FLAG_DELETE_ON_CLOSE), other;
    OVERLAPPED overlapped[COUNT];
    DWORD done = UNTOUCHED;
    ULONG_PTR key;
    LPOVERLAPPED which;
    int place;
    for (place = 0; place < COUNT; place++) {
        overlapped[place] = at((ULONGLONG)place * SIZE, NULL);
        CHECK_GOES_ON(WriteFile(file, bytes, SIZE, NULL, &overlapped[place]));
    }
    CHECK(CloseHandle(file));
    /* Its number is another file's by now, perhaps. */
    other = opens("/dev/null", GENERIC_WRITE, OPEN_EXISTING, 0);
    for (place = 0; place < COUNT; place++) {
        CHECK(GetQueuedCompletionStatus(port, &done, &key, &which, SOON));
        CHECK(done == SIZE && key == KEY);
    }
    CHECK(is_silent(port));
    CHECK(access(name, F_OK) != 0);
    CHECK(CloseHandle(other));
    if (ends_early(__func__)) {
        file = opens_pipe();
        CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
        overlapped[0] = at(0, NULL);
        CHECK_GOES_ON(ReadFile(file, bytes, 1, NULL, &overlapped[0]));
        CHECK(CloseHandle(file));
        CHECK_FAILED(port, KEY, &overlapped[0], 0, ERROR_OPERATION_ABORTED);
    }
}

/* The operations continue, and only their packets are lost. */
static void closing_a_port_ends_no_operation(void)
{
    HANDLE file = opens_pipe(), own = CreateIoCompletionPort(file, NULL, KEY, 0), again;
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    OVERLAPPED overlapped = at(0, event), other = at(0, NULL);
    char bytes[8];
    DWORD done = UNTOUCHED;
    CHECK(own != NULL);
    CHECK_GOES_ON(ReadFile(file, bytes, sizeof bytes, NULL, &overlapped));
    SetLastError(0);
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(own));
    /* It may be associated with another one now. */
    again = CreateIoCompletionPort(file, port, KEY + 1, 0);
    CHECK(again == port);
    CHECK_GOES_ON(WriteFile(file, "late", 4, NULL, &other));
    CHECK_IS(WaitForSingleObject(event, SOON), WAIT_OBJECT_0);
    CHECK(GetOverlappedResult(file, &overlapped, &done, FALSE));
    CHECK(done == 4 && memcmp(bytes, "late", 4) == 0);
    CHECK_ENDED(port, KEY + 1, &other, 4);
    CHECK(is_silent(port));
    CHECK(CloseHandle(file) && CloseHandle(event));
}

/* Unbuffered; unaligned transfers are refused, even if the file system has no unbuffered mode. */
static void unbuffered_files_want_whole_blocks(void)
{
    enum { SIZE = 16384 };
    char *bytes = (char *)_aligned_malloc(SIZE + 4096, 4096);
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, FILE_FLAG_NO_BUFFERING);
    OVERLAPPED overlapped = at(0, NULL);
    DWORD done = UNTOUCHED;
    int place;
    CHECK(bytes != NULL);
    for (place = 0; place < SIZE; place++)
        bytes[place] = (char)(place * 7 + place / 251);
    CHECK_GOES_ON(WriteFile(file, bytes, SIZE, NULL, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, SIZE);
    memset(bytes, 0, SIZE);
    CHECK_BEGUN(ReadFile(file, bytes, SIZE, NULL, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, SIZE);
    CHECK(is_filled(bytes, 0, SIZE));
    CHECK_FALSE(ReadFile(file, bytes + 4, 4096, &done, &overlapped), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(ReadFile(file, bytes, 4000, &done, &overlapped), ERROR_INVALID_PARAMETER);
    overlapped.Offset = 100;
    CHECK_FALSE(ReadFile(file, bytes, 4096, &done, &overlapped), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(WriteFile(file, bytes, 4096, &done, &overlapped), ERROR_INVALID_PARAMETER);
    CHECK(is_silent(port));
    /* At the end, and across it. */
    overlapped = at(SIZE - 4096, NULL);
    CHECK_BEGUN(ReadFile(file, bytes, SIZE, NULL, &overlapped));
    CHECK_ENDED(port, KEY, &overlapped, 4096);
    overlapped = at(SIZE, NULL);
    CHECK_FAILS(file, ReadFile(file, bytes, SIZE, NULL, &overlapped), &overlapped, ERROR_HANDLE_EOF);
    CHECK(CloseHandle(file));
    _aligned_free(bytes);
}

/* A read that starts in the cache and continues beyond: the cache is partly emptied. */
static void a_read_goes_on_where_the_cache_ends(void)
{
    enum { SIZE = 1 << 20, KEPT = 1 << 16 };
    char *bytes = (char *)malloc(SIZE);
    HANDLE file = opens_on_port(name, GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0);
    int again, descriptor = open(name, O_RDONLY);
    CHECK(bytes && descriptor >= 0);
    fill(file, SIZE);
    for (again = 0; again < 8; again++) {
        OVERLAPPED overlapped = at(0, NULL);
        CHECK(FlushFileBuffers(file));
        CHECK_IS(posix_fadvise(descriptor, KEPT << again % 4, 0, POSIX_FADV_DONTNEED), 0);
        memset(bytes, 0, SIZE);
        CHECK_BEGUN(ReadFile(file, bytes, SIZE, NULL, &overlapped));
        CHECK_ENDED(port, KEY, &overlapped, SIZE);
        CHECK(is_filled(bytes, 0, SIZE));
    }
    close(descriptor);
    CHECK(CloseHandle(file));
    free(bytes);
}

static LONG called;

/* The other name of the call. */
static void a_wide_name_opens_a_file_for_a_port(void)
{
    WCHAR wide[sizeof name];
    OVERLAPPED one = at(2, NULL), two = at(2, NULL);
    char bytes[8];
    DWORD done = UNTOUCHED;
    HANDLE file;
    CHECK(MultiByteToWideChar(CP_UTF8, 0, name, -1, wide, (int)(sizeof wide / sizeof *wide)) > 0);
    file = CreateFileW(wide, GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, FILE_FLAG_OVERLAPPED, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(CreateIoCompletionPort(file, port, KEY, 0) == port);
    CHECK_FALSE(WriteFile(file, "wide", 4, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK_GOES_ON(WriteFile(file, "wide", 4, NULL, &one));
    CHECK_ENDED(port, KEY, &one, 4);
    CHECK_BEGUN(ReadFile(file, bytes, sizeof bytes, NULL, &two));
    CHECK_ENDED(port, KEY, &two, 4);
    CHECK(memcmp(bytes, "wide", 4) == 0);
    CHECK(is_silent(port));
    CHECK(CloseHandle(file));
}

static VOID CALLBACK routine(DWORD code, DWORD bytes, LPOVERLAPPED overlapped)
{
    CHECK(code == ERROR_SUCCESS && bytes == 5 && overlapped->InternalHigh == 5);
    InterlockedIncrement(&called);
}

static void functions_are_called_at_their_ends(void)
{
    HANDLE file = opens(name, GENERIC_WRITE, CREATE_ALWAYS, 0);
    OVERLAPPED overlapped = at(0, NULL);
    CHECK(BindIoCompletionCallback(file, routine, 0));
    CHECK_GOES_ON(WriteFile(file, "hello", 5, NULL, &overlapped));
    while (InterlockedCompareExchange(&called, 0, 0) == 0)
        Sleep(1);
    CHECK(CloseHandle(file));
}

static volatile LONG returned;

static VOID CALLBACK io_callback(PTP_CALLBACK_INSTANCE instance, PVOID context, PVOID overlapped, ULONG code,
                                 ULONG_PTR bytes, PTP_IO io)
{
    CHECK(instance == NULL && io != NULL && context == &returned);
    CHECK(code == ERROR_SUCCESS || code == ERROR_OPERATION_ABORTED);
    CHECK_IS(bytes, ((LPOVERLAPPED)overlapped)->InternalHigh);
    /* Later than the end of the operation. */
    Sleep(A_WHILE);
    InterlockedIncrement(&returned);
}

/* The callbacks of a pool io, and the wait for them, which excludes operations in flight. */
static void a_pool_io_calls_for_a_file(void)
{
    HANDLE file = opens_pipe(), plain;
    OVERLAPPED in = at(0, NULL), out = at(0, NULL);
    char bytes[4];
    int round;
    PTP_IO io = CreateThreadpoolIo(file, io_callback, (PVOID)&returned, NULL);
    CHECK(io != NULL);
    SetLastError(0);
    CHECK(CreateThreadpoolIo(file, io_callback, (PVOID)&returned, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    plain = CreateFileA(name, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    SetLastError(0);
    CHECK(CreateThreadpoolIo(plain, io_callback, (PVOID)&returned, NULL) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(plain));
    StartThreadpoolIo(io);
    CHECK_GOES_ON(ReadFile(file, bytes, sizeof bytes, NULL, &in));
    for (round = 0; round < 10; round++)
        waits_for_none(io, round % 2 != 0);
    CHECK_IS(returned, 0);
    /* Both end by the write. */
    StartThreadpoolIo(io);
    CHECK_GOES_ON(WriteFile(file, "tell", 4, NULL, &out));
    until_ended(&in);
    until_ended(&out);
    WaitForThreadpoolIoCallbacks(io, FALSE);
    CHECK_IS(returned, 2);
    CHECK(memcmp(bytes, "tell", 4) == 0);
    if (ends_early(__func__)) {
        StartThreadpoolIo(io);
        CHECK_GOES_ON(ReadFile(file, bytes, sizeof bytes, NULL, &in));
        CHECK(CancelIoEx(file, &in));
        WaitForThreadpoolIoCallbacks(io, TRUE);
        CHECK_IS(returned, 3);
        CHECK_IS(in.Internal, CANCELLED);
    }
    CloseThreadpoolIo(io);
    CHECK(CloseHandle(file));
}

/* ---- sockets ------------------------------------------------------------------------------------------ */

static void sockets_are_read_and_written_as_files(void)
{
    SOCKET near, far;
    OVERLAPPED in = at(0, NULL), out = at(0, NULL);
    struct linger at_once;
    char bytes[16];
    DWORD done = UNTOUCHED;
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    CHECK_GOES_ON(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, &in));
    CHECK(WriteFile((HANDLE)far, "hello", 5, &done, NULL));
    CHECK_IS(done, 5);
    CHECK_ENDED(port, KEY, &in, 5);
    CHECK(memcmp(bytes, "hello", 5) == 0);
    CHECK_BEGUN(WriteFile((HANDLE)near, "back", 4, &done, &out));
    CHECK_ENDED(port, KEY, &out, 4);
    CHECK(ReadFile((HANDLE)far, bytes, sizeof bytes, &done, NULL));
    CHECK(done == 4 && memcmp(bytes, "back", 4) == 0);
    CHECK_IS(GetFileType((HANDLE)near), FILE_TYPE_PIPE);
    CHECK_FALSE(ReadFile((HANDLE)near, NULL, 1, &done, &in), ERROR_NOACCESS);
    /* The end is not a failure. */
    CHECK_GOES_ON(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, &in));
    CHECK_IS(shutdown(far, SD_SEND), 0);
    CHECK_ENDED(port, KEY, &in, 0);
    CHECK(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, NULL));
    CHECK_IS(done, 0);
    closesocket(near);
    closesocket(far);
    /* A reset has the code of a file that is elsewhere. */
    tcp_pair(&near, &far);
    associate(near, port, KEY);
    at_once.l_onoff = 1;
    at_once.l_linger = 0;
    CHECK_GOES_ON(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, &in));
    CHECK_IS(setsockopt(far, SOL_SOCKET, SO_LINGER, (char *)&at_once, sizeof at_once), 0);
    closesocket(far);
    CHECK_FAILED(port, KEY, &in, 0, ERROR_NETNAME_DELETED);
    CHECK_FALSE(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, NULL), ERROR_NETNAME_DELETED);
    CHECK_FALSE(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, &in), ERROR_NETNAME_DELETED);
    closesocket(near);
    CHECK_FALSE(ReadFile((HANDLE)near, bytes, sizeof bytes, &done, &in), ERROR_INVALID_HANDLE);
    CHECK_FALSE(WriteFile((HANDLE)near, bytes, sizeof bytes, &done, NULL), ERROR_INVALID_HANDLE);
}

int main(void)
{
    start();
    snprintf(name, sizeof name, "/tmp/cp-overlapped-file-%d", (int)getpid());
    snprintf(pipe_name, sizeof pipe_name, "/tmp/cp-overlapped-pipe-%d", (int)getpid());
    CHECK_IS(mkfifo(pipe_name, 0600), 0);
    where_there_is_no_ring_the_environment_decides();
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    CHECK(port != NULL);
    packets_tell_of_reads_and_writes();
    failures_have_the_codes_of_the_reference();
    packets_of_successes_at_once_can_be_spared();
    without_a_port_results_and_events_tell();
    the_low_bit_of_an_event_suppresses_the_packet();
    operations_end_though_no_thread_waits();
    the_lowest_bits_of_a_handle_are_the_programs_own();
    an_association_counts_for_what_is_in_flight();
    what_is_cancelled_ends_once();
    if (!has_ring())
        what_a_thread_has_begun_it_does_to_its_end();
    closing_a_handle_loses_nothing();
    closing_a_port_ends_no_operation();
    unbuffered_files_want_whole_blocks();
    a_read_goes_on_where_the_cache_ends();
    a_wide_name_opens_a_file_for_a_port();
    functions_are_called_at_their_ends();
    a_pool_io_calls_for_a_file();
    sockets_are_read_and_written_as_files();
    CHECK(CloseHandle(port));
    CHECK(DeleteFileA(name) && DeleteFileA(pipe_name));
    return finish();
}
