/* TransmitFile of a file whose disk hangs: no thread hangs with it, and operations waiting for the
 * disk can be cancelled and closed. A filter of system calls replaces the disk: it holds every call
 * that waits for one. */
#include <winsock2.h>
#include <mswsock.h>
#include <windows.h>

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "check.h"
#include "overlapped.h"

enum { LENGTH = 700001 };

static char name[64];
static char *contents;
static int listener = -1;
static volatile LONG held;
static HANDLE released;

/* Reads of files wait until they are released, and so does sendfile. Non-blocking queries are
 * refused, so nothing reports what is cached. */
static int hold_the_disk(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendfile, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_preadv2, 2, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EOPNOTSUPP),
    };
    struct sock_fprog program;
    program.len = (unsigned short)(sizeof code / sizeof *code);
    program.filter = code;
    if (is_slow() || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return 0;
    listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    return listener >= 0;
}

/* The disk: it does nothing until that event is set. */
static DWORD WINAPI disk(LPVOID argument)
{
    (void)argument;
    for (;;) {
        struct seccomp_notif asked;
        struct seccomp_notif_resp answer;
        memset(&asked, 0, sizeof asked);
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
            CHECK(errno == EINTR || errno == ENOENT);
            continue;
        }
        InterlockedIncrement(&held);
        CHECK_IS(WaitForSingleObject(released, INFINITE), WAIT_OBJECT_0);
        memset(&answer, 0, sizeof answer);
        answer.id = asked.id;
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        CHECK(ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0 || errno == ENOENT);
    }
    return 0;
}

static OVERLAPPED at(DWORD place, HANDLE event)
{
    OVERLAPPED overlapped = fresh(event);
    overlapped.Offset = place;
    overlapped.OffsetHigh = 0;
    return overlapped;
}

static HANDLE opens(DWORD flags)
{
    HANDLE file = CreateFileA(name, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, OPEN_EXISTING,
                              FILE_FLAG_OVERLAPPED | flags, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

static void ends(SOCKET s, LPOVERLAPPED overlapped, BOOL well, DWORD bytes, DWORD code)
{
    DWORD done = UNTOUCHED;
    CHECK_IS(WaitForSingleObject(overlapped->hEvent, SOON), WAIT_OBJECT_0);
    SetLastError(0);
    CHECK_IS(GetOverlappedResult((HANDLE)s, overlapped, &done, FALSE), well);
    CHECK_IS(GetLastError(), code);
    CHECK_IS(done, bytes);
}

/* None of these sockets has a port: one thread of the library sees to all of them. */
static void what_waits_for_the_disk_holds_up_nothing(void)
{
    HANDLE file = opens(0), events[4];
    SOCKET near[4], far[4];
    OVERLAPPED overlapped[4];
    char byte = 0, *bytes = (char *)malloc(LENGTH);
    int place;
    for (place = 0; place < 4; place++) {
        tcp_pair(&near[place], &far[place]);
        events[place] = CreateEventA(NULL, TRUE, FALSE, NULL);
        overlapped[place] = at(1, events[place]);
    }
    for (place = 0; place < 3; place++)
        CHECK_FALSE(TransmitFile(near[place], file, 1000, 0, &overlapped[place], NULL, 0), ERROR_IO_PENDING);
    CHECK_PENDING(receive_into(near[3], &byte, 1, NULL, &overlapped[3]));
    while (!InterlockedCompareExchange(&held, 0, 0))
        SwitchToThread();
    /* Other operations continue. */
    send_all(far[3], "x", 1);
    ends(near[3], &overlapped[3], TRUE, 1, 0);
    CHECK_IS(byte, 'x');
    CHECK(CancelIoEx((HANDLE)near[1], &overlapped[1]));
    ends(near[1], &overlapped[1], FALSE, 0, ERROR_OPERATION_ABORTED);
    CHECK_IS(closesocket(near[2]), 0);
    CHECK_IS(WaitForSingleObject(events[2], SOON), WAIT_OBJECT_0);
    CHECK_IS(overlapped[2].Internal, CANCELLED);
    CHECK(!HasOverlappedIoCompleted(&overlapped[0]));
    CHECK(SetEvent(released));
    receive_all(far[0], bytes, 1000);
    CHECK(memcmp(bytes, contents + 1, 1000) == 0);
    ends(near[0], &overlapped[0], TRUE, 1000, 0);
    free(bytes);
    for (place = 0; place < 4; place++) {
        if (place != 2)
            CHECK_IS(closesocket(near[place]), 0);
        CHECK_IS(closesocket(far[place]), 0);
        CHECK(CloseHandle(events[place]));
    }
    CHECK(CloseHandle(file));
}

/* The file is truncated to nothing after its size was read: the head is sent, and not delayed for
 * bytes that never arrive. */
static void a_head_goes_though_the_file_is_cut_off_behind_it(void)
{
    HANDLE file = opens(0), event = CreateEventA(NULL, TRUE, FALSE, NULL);
    TRANSMIT_FILE_BUFFERS buffers;
    OVERLAPPED overlapped = at(0, event);
    SOCKET near, far;
    LONG before = InterlockedCompareExchange(&held, 0, 0);
    char head[4];
    int waiting = -1;
    memset(&buffers, 0, sizeof buffers);
    buffers.Head = (void *)"head";
    buffers.HeadLength = 4;
    tcp_pair(&near, &far);
    CHECK(ResetEvent(released));
    CHECK_FALSE(TransmitFile(near, file, 0, 0, &overlapped, &buffers, 0), ERROR_IO_PENDING);
    while (InterlockedCompareExchange(&held, 0, 0) == before)
        SwitchToThread();
    CHECK_IS(truncate(name, 0), 0);
    CHECK(SetEvent(released));
    ends(near, &overlapped, TRUE, 4, 0);
    CHECK_IS(ioctl((int)near, SIOCOUTQNSD, &waiting), 0);
    CHECK_IS(waiting, 0);
    receive_all(far, head, 4);
    CHECK(memcmp(head, "head", 4) == 0);
    close_both(near, far);
    CHECK(CloseHandle(event) && CloseHandle(file));
}

typedef struct READER {
    SOCKET from;
    char *bytes;
    int count;
} READER;

static DWORD WINAPI reads(LPVOID argument)
{
    READER *it = (READER *)argument;
    receive_all(it->from, it->bytes, it->count);
    return 0;
}

/* Part by part, as the disk brings them; also past the cache, where the file is read in whole blocks. */
static void files_go_though_the_cache_tells_nothing(void)
{
    DWORD flags[2] = {0, FILE_FLAG_NO_BUFFERING};
    int which;
    for (which = 0; which < 2; which++) {
        HANDLE file = opens(flags[which]), event = CreateEventA(NULL, TRUE, FALSE, NULL), thread;
        OVERLAPPED overlapped = at(10, event);
        READER reader;
        SOCKET near;
        tcp_pair(&near, &reader.from);
        reader.bytes = (char *)malloc(LENGTH);
        reader.count = LENGTH - 10;
        thread = CreateThread(NULL, 0, reads, &reader, 0, NULL);
        CHECK_BEGINS(TransmitFile(near, file, 0, 0, &overlapped, NULL, 0));
        ends(near, &overlapped, TRUE, LENGTH - 10, 0);
        CHECK_IS(WaitForSingleObject(thread, SOON), WAIT_OBJECT_0);
        CHECK(memcmp(reader.bytes, contents + 10, LENGTH - 10) == 0);
        CHECK(CloseHandle(thread));
        /* More than it has. */
        overlapped = at(LENGTH - 7, event);
        CHECK_BEGINS(TransmitFile(near, file, 8, 0, &overlapped, NULL, 0));
        ends(near, &overlapped, FALSE, 7, ERROR_HANDLE_EOF);
        receive_all(reader.from, reader.bytes, 7);
        CHECK(memcmp(reader.bytes, contents + LENGTH - 7, 7) == 0);
        free(reader.bytes);
        close_both(near, reader.from);
        CHECK(CloseHandle(event) && CloseHandle(file));
    }
}

int main(void)
{
    HANDLE plain, thread;
    DWORD done;
    int is_held;
    size_t place;
    CHECK_IS(setenv("COMPLETION_PORT_FILES", "threads", 1), 0); /* a ring makes no system calls that can be held */
    start();
    snprintf(name, sizeof name, "/tmp/cp-transmit-disk-%d", (int)getpid());
    contents = (char *)malloc(LENGTH);
    CHECK(contents != NULL);
    for (place = 0; place < LENGTH; place++)
        contents[place] = (char)(place * 7 + place / 251);
    plain = CreateFileA(name, GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(WriteFile(plain, contents, LENGTH, &done, NULL) && done == LENGTH);
    CHECK(CloseHandle(plain));
    released = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK(released != NULL);
    is_held = hold_the_disk();
    if (is_held) {
        thread = CreateThread(NULL, 0, disk, NULL, 0, NULL);
        CHECK(thread != NULL && CloseHandle(thread));
        what_waits_for_the_disk_holds_up_nothing();
    } else {
        printf("SKIPPED what_waits_for_the_disk_holds_up_nothing: no call can be held here\n");
    }
    files_go_though_the_cache_tells_nothing();
    if (is_held)
        a_head_goes_though_the_file_is_cut_off_behind_it();
    else
        printf("SKIPPED a_head_goes_though_the_file_is_cut_off_behind_it: no call can be held here\n");
    CHECK(DeleteFileA(name));
    free(contents);
    return finish();
}
