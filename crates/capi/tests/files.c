/* Files without an OVERLAPPED: CreateFile with various names and existing files; ReadFile and
 * WriteFile at the file's position; and queries of a file. */
#include <winsock2.h>
#include <windows.h>

#include <pthread.h>
#include <sys/stat.h>

#include "check.h"

static char folder[64];

/* A name in the folder of this test, with this source's separators. */
static const char *in(const char *name)
{
    static char names[4][160];
    static int next;
    char *text = names[next++ % 4];
    snprintf(text, sizeof names[0], "%s%s", folder, name);
    return text;
}

static HANDLE opens(const char *name, DWORD access, DWORD disposition)
{
    HANDLE file = CreateFileA(in(name), access, FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, disposition,
                              FILE_ATTRIBUTE_NORMAL, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    return file;
}

#define CHECK_NO_FILE(call, code) (SetLastError(0), CHECK((call) == INVALID_HANDLE_VALUE), CHECK_IS(GetLastError(), (code)))
#define OPENED(name, access, disposition, flags) \
    CreateFileA(in(name), (access), FILE_SHARE_READ | FILE_SHARE_WRITE, NULL, (disposition), (flags), NULL)

static void writes(HANDLE file, const char *text)
{
    DWORD done = UNTOUCHED;
    CHECK(WriteFile(file, text, (DWORD)strlen(text), &done, NULL));
    CHECK_IS(done, strlen(text));
}

static void reads(HANDLE file, const char *text)
{
    char bytes[64];
    DWORD done = UNTOUCHED;
    CHECK(ReadFile(file, bytes, sizeof bytes, &done, NULL));
    CHECK_IS(done, strlen(text));
    CHECK(memcmp(bytes, text, done) == 0);
}

static LONGLONG size_of(HANDLE file)
{
    LARGE_INTEGER size;
    size.QuadPart = -1;
    CHECK(GetFileSizeEx(file, &size));
    return size.QuadPart;
}

static LONGLONG seeks(HANDLE file, LONGLONG distance, DWORD from)
{
    LARGE_INTEGER wanted, place;
    wanted.QuadPart = distance;
    place.QuadPart = -1;
    CHECK(SetFilePointerEx(file, wanted, &place, from));
    return place.QuadPart;
}

static void what_is_there_decides_what_is_opened(void)
{
    HANDLE file;
    CHECK_NO_FILE(OPENED("\\a", GENERIC_READ, OPEN_EXISTING, 0), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(OPENED("\\a", GENERIC_WRITE, TRUNCATE_EXISTING, 0), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(OPENED("\\none\\a", GENERIC_READ, OPEN_EXISTING, 0), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(OPENED("\\none\\a", GENERIC_WRITE, CREATE_NEW, 0), ERROR_PATH_NOT_FOUND);
    SetLastError(1);
    file = opens("\\a", GENERIC_WRITE, CREATE_NEW);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    writes(file, "first");
    CHECK(CloseHandle(file));
    CHECK_FALSE(CloseHandle(file), ERROR_INVALID_HANDLE);
    CHECK_NO_FILE(OPENED("/a", GENERIC_WRITE, CREATE_NEW, 0), ERROR_FILE_EXISTS);
    CHECK_NO_FILE(OPENED("\\a\\b", GENERIC_READ, OPEN_EXISTING, 0), ERROR_PATH_NOT_FOUND);
    file = opens("/a", GENERIC_READ, OPEN_EXISTING);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    reads(file, "first");
    CHECK(CloseHandle(file));
    file = opens("/a", GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS);
    CHECK_IS(GetLastError(), ERROR_ALREADY_EXISTS);
    reads(file, "first");
    CHECK(CloseHandle(file));
    file = opens("/b", GENERIC_READ | GENERIC_WRITE, OPEN_ALWAYS);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    CHECK(CloseHandle(file));
    file = opens("/a", GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS);
    CHECK_IS(GetLastError(), ERROR_ALREADY_EXISTS);
    CHECK_IS(size_of(file), 0);
    writes(file, "second");
    CHECK(CloseHandle(file));
    file = opens("/a", GENERIC_WRITE, TRUNCATE_EXISTING);
    CHECK_IS(size_of(file), 0);
    CHECK(CloseHandle(file));
    CHECK_NO_FILE(OPENED("/a", GENERIC_READ, TRUNCATE_EXISTING, 0), ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(OPENED("/a", GENERIC_READ, 0, 0), ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(OPENED("/a", GENERIC_READ, 6, 0), ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(OPENED("", GENERIC_READ, OPEN_EXISTING, 0), ERROR_ACCESS_DENIED); /* the folder */
    CHECK_NO_FILE(OPENED("", GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS, 0), ERROR_ACCESS_DENIED);
    file = OPENED("", GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(CloseHandle(file));
    CHECK_NO_FILE(CreateFileA(NULL, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(CreateFileW(NULL, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(CreateFileA("", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_PATH_NOT_FOUND);
}

static void a_name_is_a_name_of_the_system(void)
{
    static char long_name[5000];
    WCHAR wide[160];
    HANDLE file;
    CHECK(MultiByteToWideChar(CP_UTF8, 0, in("\\x\xC3\xA4"), -1, wide, 160) > 0);
    file = CreateFileW(wide, GENERIC_WRITE, 0, NULL, CREATE_NEW, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(CloseHandle(file));
    CHECK_IS(access(in("/x\xC3\xA4"), F_OK), 0);
    CHECK(DeleteFileW(wide));
    CHECK(access(in("/x\xC3\xA4"), F_OK) != 0);
    CHECK_FALSE(DeleteFileW(wide), ERROR_FILE_NOT_FOUND);
    CHECK_FALSE(DeleteFileA(in("\\none\\a")), ERROR_PATH_NOT_FOUND);
    CHECK_FALSE(DeleteFileA(in("")), ERROR_ACCESS_DENIED);
    CHECK_NO_FILE(CreateFileA("\\\\server\\share\\a", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_BAD_NETPATH);
    CHECK_NO_FILE(CreateFileA("\\\\?\\UNC\\server\\a", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_BAD_NETPATH);
    CHECK_NO_FILE(CreateFileA("\\\\.\\pipe\\a", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(CreateFileA("C:\\folder\\a", GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_PATH_NOT_FOUND);
    memset(long_name, 'a', sizeof long_name - 1);
    CHECK_NO_FILE(CreateFileA(long_name, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_FILENAME_EXCED_RANGE);
    long_name[300] = 0;
    CHECK_NO_FILE(CreateFileA(long_name, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_FILENAME_EXCED_RANGE);
    snprintf(long_name, sizeof long_name, "\\\\?\\%s", in("\\b"));
    file = CreateFileA(long_name, GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(CloseHandle(file));
    file = CreateFileA("nul", GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK_IS(GetFileType(file), FILE_TYPE_CHAR);
    writes(file, "gone");
    reads(file, "");
    CHECK(CloseHandle(file));
    CHECK_IS(symlink(in("/circle"), in("/circle")), 0);
    CHECK_NO_FILE(OPENED("/circle", GENERIC_READ, OPEN_EXISTING, 0), ERROR_CANT_RESOLVE_FILENAME);
    CHECK_IS(unlink(in("/circle")), 0);
    /* A link that leads nowhere: its target is created. */
    CHECK_IS(symlink(in("/target"), in("/link")), 0);
    file = opens("/link", GENERIC_WRITE, OPEN_ALWAYS);
    CHECK_IS(GetLastError(), ERROR_SUCCESS);
    CHECK(CloseHandle(file));
    CHECK(unlink(in("/target")) == 0 && unlink(in("/link")) == 0);
}

static void a_file_is_read_and_written_where_it_is(void)
{
    HANDLE file = opens("/c", GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS);
    LARGE_INTEGER distance;
    LONG high;
    char bytes[4];
    DWORD done = UNTOUCHED;
    writes(file, "0123456789");
    CHECK_IS(seeks(file, 2, FILE_BEGIN), 2);
    CHECK(ReadFile(file, bytes, 3, &done, NULL));
    CHECK(done == 3 && memcmp(bytes, "234", 3) == 0);
    CHECK_IS(seeks(file, 1, FILE_CURRENT), 6);
    CHECK_IS(seeks(file, -1, FILE_END), 9);
    reads(file, "9");
    /* At the end: nothing, and no failure. */
    reads(file, "");
    CHECK(ReadFile(file, bytes, 0, &done, NULL));
    CHECK_IS(done, 0);
    distance.QuadPart = -1;
    CHECK_FALSE(SetFilePointerEx(file, distance, NULL, FILE_BEGIN), ERROR_NEGATIVE_SEEK);
    CHECK_FALSE(SetFilePointerEx(file, distance, NULL, 3), ERROR_INVALID_PARAMETER);
    CHECK_IS(SetFilePointer(file, 4, NULL, FILE_BEGIN), 4);
    CHECK_IS(GetLastError(), NO_ERROR);
    CHECK_IS(SetFilePointer(file, -2, NULL, FILE_CURRENT), 2);
    high = 1;
    CHECK_IS(SetFilePointer(file, 5, &high, FILE_BEGIN), 5);
    CHECK_IS(high, 1);
    CHECK_IS(SetFilePointer(file, 0, NULL, FILE_CURRENT), INVALID_SET_FILE_POINTER);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK_IS(SetFilePointer(file, -1, NULL, FILE_BEGIN), INVALID_SET_FILE_POINTER);
    CHECK_IS(GetLastError(), ERROR_NEGATIVE_SEEK);
    CHECK(SetEndOfFile(file));
    CHECK_IS(size_of(file), 4294967301LL);
    CHECK_IS(GetFileSize(file, &done), 5);
    CHECK_IS(done, 1);
    CHECK_IS(GetFileSize(file, NULL), 5);
    CHECK_IS(seeks(file, 3, FILE_BEGIN), 3);
    CHECK(SetEndOfFile(file));
    CHECK_IS(size_of(file), 3);
    CHECK(FlushFileBuffers(file));
    CHECK_IS(GetFileType(file), FILE_TYPE_DISK);
    CHECK_FALSE(GetFileSizeEx(file, NULL), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(file));
    CHECK_FALSE(WriteFile(file, "x", 1, &done, NULL), ERROR_INVALID_HANDLE);
    CHECK_IS(done, 0);
    CHECK_FALSE(ReadFile(file, bytes, 1, &done, NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(SetEndOfFile(file), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FlushFileBuffers(file), ERROR_INVALID_HANDLE);
    CHECK_FALSE(SetFilePointerEx(file, distance, NULL, FILE_END), ERROR_INVALID_HANDLE);
    CHECK_IS(GetFileSize(file, NULL), INVALID_FILE_SIZE);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
    CHECK_IS(GetFileType(file), FILE_TYPE_UNKNOWN);
    CHECK_IS(GetLastError(), ERROR_INVALID_HANDLE);
}

static void a_file_is_used_only_as_it_was_opened(void)
{
    HANDLE file = opens("/c", GENERIC_READ, OPEN_EXISTING);
    char byte;
    DWORD done = UNTOUCHED;
    CHECK_FALSE(WriteFile(file, "x", 1, &done, NULL), ERROR_ACCESS_DENIED);
    CHECK_FALSE(FlushFileBuffers(file), ERROR_ACCESS_DENIED);
    CHECK_FALSE(SetEndOfFile(file), ERROR_ACCESS_DENIED);
    CHECK_FALSE(ReadFile(file, NULL, 1, &done, NULL), ERROR_NOACCESS);
    if (!is_slow()) /* Valgrind minds */
        CHECK_FALSE(ReadFile(file, (void *)(uintptr_t)8, 1, &done, NULL), ERROR_NOACCESS);
    CHECK(CloseHandle(file));
    file = opens("/c", GENERIC_WRITE, OPEN_EXISTING);
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, NULL), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file));
    /* What may be asked of a file that may not be read. */
    file = opens("/c", 0, OPEN_EXISTING);
    CHECK_IS(size_of(file), 3);
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, NULL), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file));
    /* What may only be added to. */
    file = opens("/c", FILE_APPEND_DATA, OPEN_EXISTING);
    writes(file, "end");
    CHECK_IS(seeks(file, 0, FILE_BEGIN), 0);
    writes(file, "!");
    CHECK_IS(size_of(file), 7);
    CHECK(CloseHandle(file));
    if (geteuid() != 0) {
        CHECK_IS(chmod(in("/c"), 0), 0);
        CHECK_NO_FILE(OPENED("/c", GENERIC_READ, OPEN_EXISTING, 0), ERROR_ACCESS_DENIED);
        CHECK_IS(chmod(in("/c"), 0600), 0);
    }
    file = CreateFileA("/dev/full", GENERIC_WRITE, FILE_SHARE_WRITE, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK_FALSE(WriteFile(file, "x", 1, &done, NULL), ERROR_DISK_FULL);
    CHECK_IS(GetFileSize(file, NULL), INVALID_FILE_SIZE);
    CHECK_IS(GetLastError(), ERROR_INVALID_FUNCTION);
    CHECK(CloseHandle(file));
    file = CreateFileA("/proc/self/mem", GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK_FALSE(ReadFile(file, &byte, 1, &done, NULL), ERROR_IO_DEVICE);
    CHECK(CloseHandle(file));
    CHECK_FALSE(ReadFile(INVALID_HANDLE_VALUE, &byte, 1, &done, NULL), ERROR_INVALID_HANDLE);
}

/* A file that is shared with none is opened once, by programs of this library. */
static void what_is_not_shared_is_opened_once(void)
{
    const DWORD all = FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE;
    HANDLE other, file = CreateFileA(in("/d"), GENERIC_READ | GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    writes(file, "kept");
    CHECK_NO_FILE(CreateFileA(in("/d"), GENERIC_READ, all, NULL, OPEN_EXISTING, 0, NULL), ERROR_SHARING_VIOLATION);
    CHECK_NO_FILE(CreateFileA(in("/d"), GENERIC_WRITE, 0, NULL, CREATE_ALWAYS, 0, NULL), ERROR_SHARING_VIOLATION);
    /* Nothing of it is taken away by that. */
    CHECK_IS(size_of(file), 4);
    other = CreateFileA(in("/d"), 0, 0, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(other != INVALID_HANDLE_VALUE && CloseHandle(other));
    CHECK(CloseHandle(file));
    file = CreateFileA(in("/d"), GENERIC_READ, all, NULL, OPEN_EXISTING, 0, NULL);
    other = CreateFileA(in("/d"), GENERIC_WRITE, all, NULL, OPEN_EXISTING, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE && other != INVALID_HANDLE_VALUE);
    CHECK_NO_FILE(CreateFileA(in("/d"), GENERIC_READ, 0, NULL, OPEN_EXISTING, 0, NULL), ERROR_SHARING_VIOLATION);
    CHECK(CloseHandle(file) && CloseHandle(other));
}

static void flags_say_how_a_file_is_kept(void)
{
    SECURITY_ATTRIBUTES inherited;
    char *block = (char *)_aligned_malloc(4096, 4096);
    DWORD done = UNTOUCHED;
    HANDLE file = CreateFileA(in("/e"), GENERIC_READ | GENERIC_WRITE, FILE_SHARE_READ, NULL, CREATE_NEW,
                              FILE_FLAG_DELETE_ON_CLOSE | FILE_FLAG_WRITE_THROUGH | FILE_FLAG_SEQUENTIAL_SCAN, NULL);
    CHECK(file != INVALID_HANDLE_VALUE && block);
    writes(file, "through");
    CHECK_IS(access(in("/e"), F_OK), 0);
    CHECK_IS(rename(in("/e"), in("/f")), 0);
    CHECK(CloseHandle(file));
    CHECK(access(in("/f"), F_OK) != 0);
    /* An existing file with the name stays. */
    file = CreateFileA(in("/e"), GENERIC_WRITE, FILE_SHARE_WRITE, NULL, CREATE_NEW, FILE_FLAG_DELETE_ON_CLOSE, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    CHECK(DeleteFileA(in("/e")));
    CHECK(CloseHandle(opens("/e", GENERIC_WRITE, CREATE_NEW)));
    CHECK(CloseHandle(file));
    CHECK_IS(access(in("/e"), F_OK), 0);
    file = CreateFileA(in("/e"), GENERIC_READ | GENERIC_WRITE, 0, NULL, OPEN_EXISTING,
                       FILE_FLAG_NO_BUFFERING | FILE_FLAG_RANDOM_ACCESS, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    memset(block, 'x', 4096);
    CHECK_FALSE(WriteFile(file, block, 100, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(WriteFile(file, block + 1, 512, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK(WriteFile(file, block, 4096, &done, NULL));
    CHECK_IS(done, 4096);
    CHECK_IS(seeks(file, 1, FILE_BEGIN), 1);
    CHECK_FALSE(ReadFile(file, block, 512, &done, NULL), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(file));
    _aligned_free(block);
    file = CreateFileA(in("/g"), GENERIC_WRITE, 0, NULL, CREATE_NEW, FILE_ATTRIBUTE_READONLY, NULL);
    CHECK(file != INVALID_HANDLE_VALUE);
    writes(file, "once");
    CHECK(CloseHandle(file));
    CHECK_IS(GetFileAttributesA(in("\\g")), FILE_ATTRIBUTE_READONLY);
    if (geteuid() != 0)
        CHECK_NO_FILE(OPENED("\\g", GENERIC_WRITE, OPEN_EXISTING, 0), ERROR_ACCESS_DENIED);
    CHECK(DeleteFileA(in("\\g")));
    memset(&inherited, 0, sizeof inherited);
    inherited.nLength = sizeof inherited;
    inherited.bInheritHandle = TRUE;
    file = CreateFileA(in("/g"), GENERIC_WRITE, 0, &inherited, CREATE_NEW, 0, NULL);
    CHECK(file != INVALID_HANDLE_VALUE && CloseHandle(file) && DeleteFileA(in("/g")));
}

static void names_are_changed(void)
{
    char temporary[MAX_PATH], file[MAX_PATH];
    CHECK(CreateDirectoryA(in("\\sub"), NULL));
    CHECK_FALSE(CreateDirectoryA(in("\\sub"), NULL), ERROR_ALREADY_EXISTS);
    CHECK_FALSE(CreateDirectoryA(in("\\none\\sub"), NULL), ERROR_PATH_NOT_FOUND);
    CHECK_IS(GetFileAttributesA(in("\\sub")), FILE_ATTRIBUTE_DIRECTORY);
    CHECK_IS(GetFileAttributesA(in("\\a")), FILE_ATTRIBUTE_NORMAL);
    SetLastError(0);
    CHECK_IS(GetFileAttributesA(in("\\none")), INVALID_FILE_ATTRIBUTES);
    CHECK_IS(GetLastError(), ERROR_FILE_NOT_FOUND);
    CHECK(MoveFileA(in("\\a"), in("\\sub\\a")));
    CHECK_FALSE(MoveFileA(in("\\a"), in("\\sub\\a")), ERROR_FILE_NOT_FOUND);
    CHECK_FALSE(MoveFileA(in("\\b"), in("\\sub\\a")), ERROR_ALREADY_EXISTS);
    CHECK(MoveFileExA(in("\\b"), in("\\sub\\a"), MOVEFILE_REPLACE_EXISTING));
    CHECK_FALSE(RemoveDirectoryA(in("\\sub")), ERROR_DIR_NOT_EMPTY);
    CHECK(DeleteFileA(in("\\sub\\a")));
    CHECK(RemoveDirectoryA(in("\\sub")));
    CHECK_IS(GetTempPathA(1, temporary), GetTempPathA(sizeof temporary, temporary) + 1);
    CHECK_IS(temporary[strlen(temporary) - 1], '/');
    CHECK(GetTempFileNameA(folder, "prefix", 0, file) != 0);
    CHECK(strncmp(file + strlen(folder), "/pre", 4) == 0);
    CHECK_IS(access(file, F_OK), 0);
    CHECK(DeleteFileA(file));
    CHECK(GetTempFileNameA(folder, "pre", 0x1234, file) == 0x1234);
    CHECK(strcmp(file + strlen(folder), "/pre1234.tmp") == 0);
    CHECK(access(file, F_OK) != 0);
}

/* With an OVERLAPPED on a file opened without the flag, it has the offset, and the call waits. */
static void an_overlapped_says_where_though_the_call_waits(void)
{
    HANDLE file = opens("/c", GENERIC_READ | GENERIC_WRITE, CREATE_ALWAYS), port;
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    char bytes[16];
    DWORD done = UNTOUCHED;
    OVERLAPPED overlapped;
    writes(file, "0123456789");
    memset(&overlapped, 0xA5, sizeof overlapped);
    overlapped.Offset = 7;
    overlapped.OffsetHigh = 0;
    overlapped.hEvent = event;
    CHECK(ReadFile(file, bytes, sizeof bytes, &done, &overlapped));
    CHECK(done == 3 && memcmp(bytes, "789", 3) == 0);
    CHECK(overlapped.Internal == 0 && overlapped.InternalHigh == 3);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_OBJECT_0);
    /* The position is after that. */
    CHECK_IS(seeks(file, 0, FILE_CURRENT), 10);
    overlapped.Offset = 10;
    CHECK_FALSE(ReadFile(file, bytes, sizeof bytes, &done, &overlapped), ERROR_HANDLE_EOF);
    CHECK_IS(done, 0);
    CHECK_IS(overlapped.Internal, 0xC0000011u);
    CHECK_IS(WaitForSingleObject(event, 0), WAIT_TIMEOUT);
    overlapped.Offset = 1;
    CHECK(WriteFile(file, "xy", 2, &done, &overlapped));
    CHECK_IS(seeks(file, 0, FILE_CURRENT), 3);
    overlapped.Offset = overlapped.OffsetHigh = 0xFFFFFFFF;
    CHECK(WriteFile(file, "end", 3, &done, &overlapped));
    CHECK_IS(size_of(file), 13);
    CHECK(GetOverlappedResult(file, &overlapped, &done, TRUE) && done == 3);
    overlapped.OffsetHigh = 0x80000000u;
    CHECK_FALSE(ReadFile(file, bytes, 1, &done, &overlapped), ERROR_INVALID_PARAMETER);
    /* It cannot be associated. */
    port = CreateIoCompletionPort(INVALID_HANDLE_VALUE, NULL, 0, 0);
    SetLastError(0);
    CHECK(CreateIoCompletionPort(file, port, 1, 0) == NULL);
    CHECK_IS(GetLastError(), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(port) && CloseHandle(event) && CloseHandle(file));
}

static void a_pipe_is_read_as_it_comes(void)
{
    HANDLE reader, writer;
    LARGE_INTEGER place;
    char bytes[8];
    DWORD done = UNTOUCHED;
    int both;
    place.QuadPart = 0;
    CHECK_IS(mkfifo(in("/pipe"), 0600), 0);
    both = open(in("/pipe"), O_RDWR);
    reader = opens("/pipe", GENERIC_READ, OPEN_EXISTING);
    writer = opens("/pipe", GENERIC_WRITE, OPEN_EXISTING);
    CHECK_IS(GetFileType(reader), FILE_TYPE_PIPE);
    CHECK_FALSE(SetFilePointerEx(reader, place, NULL, FILE_BEGIN), ERROR_INVALID_FUNCTION);
    writes(writer, "abc");
    reads(reader, "abc");
    CHECK(FlushFileBuffers(writer));
    close(both);
    CHECK(CloseHandle(writer));
    CHECK_FALSE(ReadFile(reader, bytes, sizeof bytes, &done, NULL), ERROR_BROKEN_PIPE);
    CHECK(CloseHandle(reader) && DeleteFileA(in("/pipe")));
}

/* ---- files in a folder ---------------------------------------------------------------------------------- */

/* Counts the matching names, and joins them with a space after each. */
static int finds(const char *pattern, char *names, size_t room)
{
    WIN32_FIND_DATAA found;
    int count = 0;
    HANDLE search;
    names[0] = 0;
    SetLastError(0);
    search = FindFirstFileA(pattern, &found);
    if (search == INVALID_HANDLE_VALUE) {
        CHECK_IS(GetLastError(), ERROR_FILE_NOT_FOUND);
        return 0;
    }
    do {
        CHECK(strlen(names) + strlen(found.cFileName) + 2 < room);
        strcat(strcat(names, found.cFileName), " ");
        count++;
    } while (FindNextFileA(search, &found));
    CHECK_IS(GetLastError(), ERROR_NO_MORE_FILES);
    CHECK_FALSE(FindNextFileA(search, &found), ERROR_NO_MORE_FILES);
    CHECK(FindClose(search));
    return count;
}

static void makes(const char *name)
{
    CHECK(CloseHandle(opens(name, GENERIC_WRITE, CREATE_NEW)));
}

static void a_pattern_is_that_of_the_reference(void)
{
    static const struct {
        const char *pattern, *name;
        int matches;
    } cases[] = {
        {"*", "a", 1},           {"*.*", "a", 1},          {"*.*", "a.b.c", 1},     {"*.txt", "a.txt", 1},
        {"*.txt", ".txt", 1},    {"*.txt", "a.b.txt", 1},  {"*.txt", "a.txt.b", 0}, {"*.txt", "a.txtx", 0},
        {"*.txt", "txt", 0},     {"a*", "abc", 1},         {"a*", "b", 0},          {"*c", "a.b.c", 1},
        {"a*c", "abcabc", 1},    {"?", "a", 1},            {"?", "ab", 0},          {"???", "a", 1},
        {"a?", "a", 1},          {"?b", "b", 0},           {"??.txt", "a.txt", 1},  {"??.txt", "abc.txt", 0},
        {"a?c", "a.c", 0},       {"a?c", "abc", 1},        {"a.*", "a", 1},         {"a.*", "a.b", 1},
        {"a.*", "ab", 0},        {"a.?", "a", 1},          {"a.?", "a.b", 1},       {"a.?", "a.bc", 0},
        {"*.", "a", 1},          {"*.", "a.b", 0},         {"a*.*", "ab", 1},       {"a*.*", "a.b", 1},
        {"*.*x", "a.bx", 1},     {"*.*x", "ax", 0},        {"?", "\xC3\xA4", 1},    {"?", "\xFF", 1},
        {"*\xFF", "a\xFF", 1},   {"*\xFE", "a\xFF", 0},    {"*A", "ba", 0},         {"*[a]", "x[a]", 1},
        {"*<", "a", 0},          {"*a*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 0},
    };
    char names[600], pattern[160];
    size_t at;
    CHECK(CreateDirectoryA(in("\\found"), NULL));
    for (at = 0; at < sizeof cases / sizeof *cases; at++) {
        char name[80];
        int dots;
        snprintf(name, sizeof name, "\\found\\%s", cases[at].name);
        makes(name);
        snprintf(pattern, sizeof pattern, "%s\\found\\%s", folder, cases[at].pattern);
        finds(pattern, names, sizeof names);
        dots = strncmp(names, ". .. ", 5) == 0 ? 5 : strncmp(names, ".. ", 3) == 0 ? 3 : 0;
        if ((names[dots] != 0) != cases[at].matches ||
            (names[dots] && strncmp(names + dots, cases[at].name, strlen(cases[at].name)) != 0)) {
            fprintf(stderr, "%s of %s finds \"%s\"\n", cases[at].pattern, cases[at].name, names);
            exit(1);
        }
        CHECK(DeleteFileA(in(name)));
    }
    CHECK_IS(finds(in("\\found\\*"), names, sizeof names), 2);
    CHECK(strcmp(names, ". .. ") == 0);
    CHECK(RemoveDirectoryA(in("\\found")));
}

static void what_is_found_is_told(void)
{
    WIN32_FIND_DATAA found;
    WIN32_FIND_DATAW wide;
    WCHAR wide_name[160];
    FILETIME now;
    HANDLE search, file;
    LARGE_INTEGER size;
    CHECK(CreateDirectoryA(in("\\found"), NULL));
    file = opens("\\found\\big", GENERIC_WRITE, CREATE_NEW);
    size.QuadPart = 0x100000003LL;
    CHECK(SetFilePointerEx(file, size, NULL, FILE_BEGIN) && SetEndOfFile(file) && CloseHandle(file));
    memset(&found, 0xA5, sizeof found);
    search = FindFirstFileA(in("/found/big"), &found);
    CHECK(search != INVALID_HANDLE_VALUE);
    CHECK(strcmp(found.cFileName, "big") == 0);
    CHECK(found.nFileSizeHigh == 1 && found.nFileSizeLow == 3);
    CHECK_IS(found.dwFileAttributes, FILE_ATTRIBUTE_NORMAL);
    CHECK(found.dwReserved0 == 0 && found.cAlternateFileName[0] == 0);
    GetSystemTimeAsFileTime(&now);
    CHECK(now.dwHighDateTime - found.ftLastWriteTime.dwHighDateTime <= 100); /* units of 429 seconds */
    /* The handle works with no other call, and with none after it is closed. */
    CHECK_FALSE(CloseHandle(search), ERROR_INVALID_HANDLE);
    CHECK_IS(WaitForSingleObject(search, 0), WAIT_FAILED);
    CHECK_FALSE(FindNextFileA(search, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(FindNextFileA(search, &found), ERROR_NO_MORE_FILES);
    CHECK(FindClose(search));
    CHECK_FALSE(FindClose(search), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FindNextFileA(search, &found), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FindNextFileW(search, &wide), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FindClose(NULL), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FindClose(INVALID_HANDLE_VALUE), ERROR_INVALID_HANDLE);
    file = CreateEventA(NULL, TRUE, FALSE, NULL);
    CHECK_FALSE(FindClose(file), ERROR_INVALID_HANDLE);
    CHECK_FALSE(FindNextFileA(file, &found), ERROR_INVALID_HANDLE);
    CHECK(CloseHandle(file));
    CHECK(DeleteFileA(in("\\found\\big")));
    /* Wide names, bytes that are not UTF-8, and a link that leads nowhere. */
    CHECK(MultiByteToWideChar(CP_UTF8, 0, in("\\found\\\xC3\xA4?"), -1, wide_name, 160) > 0);
    file = OPENED("\\found\\\xC3\xA4\xE2\x82\xAC", GENERIC_WRITE, CREATE_NEW, FILE_ATTRIBUTE_READONLY);
    CHECK(file != INVALID_HANDLE_VALUE && CloseHandle(file));
    search = FindFirstFileW(wide_name, &wide);
    CHECK(search != INVALID_HANDLE_VALUE && FindClose(search));
    CHECK(wide.cFileName[0] == 0xE4 && wide.cFileName[1] == 0x20AC && wide.cFileName[2] == 0);
    CHECK_IS(wide.dwFileAttributes, FILE_ATTRIBUTE_READONLY);
    CHECK(DeleteFileA(in("\\found\\\xC3\xA4\xE2\x82\xAC")));
    CHECK_IS(symlink("nowhere", in("/found/link")), 0);
    search = FindFirstFileExA(in("/found/l*k"), FindExInfoBasic, &found, FindExSearchLimitToDirectories, NULL,
                              FIND_FIRST_EX_LARGE_FETCH);
    CHECK(search != INVALID_HANDLE_VALUE && strcmp(found.cFileName, "link") == 0);
    CHECK(FindClose(search) && DeleteFileA(in("/found/link")));
    /* The folder itself, and names that do not exist. */
    search = FindFirstFileA(in("\\found"), &found);
    CHECK(search != INVALID_HANDLE_VALUE && FindClose(search));
    CHECK(found.dwFileAttributes == FILE_ATTRIBUTE_DIRECTORY && found.nFileSizeLow == 0);
    CHECK_NO_FILE(FindFirstFileA(in("\\found\\"), &found), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA(in("\\found\\none"), &found), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA(in("\\found\\none*"), &found), ERROR_FILE_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA(in("\\none\\*"), &found), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA(in("\\none\\a"), &found), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA("", &found), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA(NULL, &found), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileW(NULL, &wide), ERROR_PATH_NOT_FOUND);
    CHECK_NO_FILE(FindFirstFileA("*", NULL), ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(FindFirstFileW(L"*", NULL), ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(FindFirstFileExA("*", FindExInfoMaxInfoLevel, &found, FindExSearchNameMatch, NULL, 0),
                     ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(FindFirstFileExA("*", FindExInfoStandard, &found, FindExSearchLimitToDevices, NULL, 0),
                     ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(FindFirstFileExA("*", FindExInfoStandard, &found, FindExSearchNameMatch, &found, 0),
                     ERROR_INVALID_PARAMETER);
    CHECK_NO_FILE(FindFirstFileExA("*", FindExInfoStandard, &found, FindExSearchNameMatch, NULL, 8),
                     ERROR_INVALID_PARAMETER);
    CHECK(RemoveDirectoryA(in("\\found")));
    if (geteuid() != 0) {
        CHECK_IS(mkdir(in("/shut"), 0), 0);
        CHECK_NO_FILE(FindFirstFileA(in("/shut/*"), &found), ERROR_ACCESS_DENIED);
        CHECK(RemoveDirectoryA(in("/shut")));
    }
}

enum { FILES_FOUND = 300, FINDERS = 4 };
static unsigned char times_found[FILES_FOUND];

static void *finds_its_part(void *search)
{
    WIN32_FIND_DATAA found;
    while (FindNextFileA((HANDLE)search, &found))
        __atomic_add_fetch(&times_found[atoi(found.cFileName)], 1, __ATOMIC_SEQ_CST);
    CHECK_IS(GetLastError(), ERROR_NO_MORE_FILES);
    return NULL;
}

/* Each file is returned to one thread. Files deleted meanwhile are not found. */
static void threads_find_together(void)
{
    WIN32_FIND_DATAA found;
    pthread_t threads[FINDERS];
    char name[40];
    HANDLE search;
    int at;
    CHECK(CreateDirectoryA(in("\\many"), NULL));
    for (at = 0; at < FILES_FOUND; at++) {
        snprintf(name, sizeof name, "\\many\\%d.x", at);
        makes(name);
    }
    search = FindFirstFileA(in("\\many\\*.x"), &found);
    CHECK(search != INVALID_HANDLE_VALUE);
    times_found[atoi(found.cFileName)]++;
    for (at = 0; at < FINDERS; at++)
        CHECK_IS(pthread_create(&threads[at], NULL, finds_its_part, search), 0);
    for (at = 0; at < FINDERS; at++)
        CHECK_IS(pthread_join(threads[at], NULL), 0);
    CHECK(FindClose(search));
    for (at = 0; at < FILES_FOUND; at++)
        CHECK_IS(times_found[at], 1);
    search = FindFirstFileA(in("\\many\\*"), &found);
    CHECK(search != INVALID_HANDLE_VALUE && strcmp(found.cFileName, ".") == 0);
    CHECK(FindNextFileA(search, &found) && strcmp(found.cFileName, "..") == 0);
    for (at = 0; at < FILES_FOUND; at++) {
        snprintf(name, sizeof name, "\\many\\%d.x", at);
        CHECK(DeleteFileA(in(name)));
    }
    CHECK_FALSE(FindNextFileA(search, &found), ERROR_NO_MORE_FILES);
    CHECK(FindClose(search));
    CHECK(RemoveDirectoryA(in("\\many")));
}

/* ---- metadata ---------------------------------------------------------------------------------------------- */

static FILETIME time_of(LONGLONG ticks)
{
    FILETIME time;
    time.dwLowDateTime = (DWORD)ticks;
    time.dwHighDateTime = (DWORD)(ticks >> 32);
    return time;
}

static LONGLONG ticks_of(FILETIME time)
{
    return (LONGLONG)((ULONGLONG)time.dwHighDateTime << 32 | time.dwLowDateTime);
}

/* 2001-09-09 01:46:40.1234567; the other is in 1969. */
#define A_TIME 126444736001234567LL
#define AN_OLD_TIME 116444735990000000LL

static void a_file_has_times(void)
{
    FILETIME created, accessed, written, now, wanted = time_of(A_TIME);
    WIN32_FILE_ATTRIBUTE_DATA data;
    HANDLE file = opens("/t", GENERIC_READ | GENERIC_WRITE, CREATE_NEW);
    CHECK(GetFileTime(file, &created, &accessed, &written));
    GetSystemTimeAsFileTime(&now);
    CHECK(ticks_of(written) > A_TIME && ticks_of(written) <= ticks_of(now) + 10000000);
    CHECK(ticks_of(created) == 0 || ticks_of(created) > A_TIME); /* 0: the file system does not record it */
    CHECK(SetFileTime(file, NULL, NULL, &wanted));
    CHECK(GetFileTime(file, NULL, &now, &written));
    CHECK_IS(ticks_of(written), A_TIME);
    CHECK_IS(ticks_of(now), ticks_of(accessed));
    CHECK_IS(CompareFileTime(&written, &accessed), -1);
    CHECK_IS(CompareFileTime(&accessed, &written), 1);
    CHECK_IS(CompareFileTime(&written, &wanted), 0);
    wanted = time_of(AN_OLD_TIME);
    CHECK(SetFileTime(file, &wanted, &wanted, NULL));
    CHECK(GetFileAttributesExA(in("\\t"), GetFileExInfoStandard, &data));
    CHECK_IS(ticks_of(data.ftLastAccessTime), AN_OLD_TIME);
    CHECK_IS(ticks_of(data.ftLastWriteTime), A_TIME);
    CHECK_IS(ticks_of(data.ftCreationTime), ticks_of(created));
    /* Values that leave a time unchanged, and an invalid one. */
    wanted = time_of(0);
    CHECK(SetFileTime(file, NULL, &wanted, NULL));
    wanted = time_of(-1);
    CHECK(SetFileTime(file, &wanted, &wanted, &wanted));
    CHECK(SetFileTime(file, NULL, NULL, NULL));
    CHECK(GetFileTime(file, NULL, &accessed, &written));
    CHECK(ticks_of(accessed) == AN_OLD_TIME && ticks_of(written) == A_TIME);
    wanted = time_of(-3);
    CHECK_FALSE(SetFileTime(file, NULL, NULL, &wanted), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(SetFileTime(file, &wanted, NULL, NULL), ERROR_INVALID_PARAMETER);
    CHECK(CloseHandle(file));
    wanted = time_of(A_TIME);
    CHECK_FALSE(SetFileTime(file, NULL, NULL, &wanted), ERROR_INVALID_HANDLE);
    CHECK_FALSE(GetFileTime(file, NULL, NULL, &written), ERROR_INVALID_HANDLE);
    file = opens("/t", GENERIC_READ, OPEN_EXISTING);
    CHECK_FALSE(SetFileTime(file, NULL, &wanted, NULL), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file));
    /* On a file opened only for its attributes. */
    file = opens("/t", FILE_WRITE_ATTRIBUTES, OPEN_EXISTING);
    CHECK(SetFileTime(file, NULL, &wanted, NULL) && GetFileTime(file, NULL, &accessed, NULL));
    CHECK_IS(ticks_of(accessed), A_TIME);
    CHECK(CloseHandle(file) && DeleteFileA(in("/t")));
}

static void a_file_has_an_identity(void)
{
    BY_HANDLE_FILE_INFORMATION one, other;
    FILE_ID_INFO id, other_id;
    FILE_STANDARD_INFO standard;
    FILE_BASIC_INFO basic;
    FILE_ATTRIBUTE_TAG_INFO tag;
    HANDLE file = opens("/i", GENERIC_READ | GENERIC_WRITE, CREATE_NEW), again;
    writes(file, "12345");
    CHECK_IS(link(in("/i"), in("/j")), 0);
    again = opens("/j", GENERIC_READ, OPEN_EXISTING);
    memset(&one, 0xA5, sizeof one);
    memset(&other, 0x5A, sizeof other);
    CHECK(GetFileInformationByHandle(file, &one) && GetFileInformationByHandle(again, &other));
    CHECK(one.nFileIndexHigh == other.nFileIndexHigh && one.nFileIndexLow == other.nFileIndexLow);
    CHECK_IS(one.dwVolumeSerialNumber, other.dwVolumeSerialNumber);
    CHECK(one.nNumberOfLinks == 2 && one.nFileSizeLow == 5 && one.nFileSizeHigh == 0);
    CHECK_IS(one.dwFileAttributes, FILE_ATTRIBUTE_NORMAL);
    CHECK(GetFileInformationByHandleEx(file, FileIdInfo, &id, sizeof id));
    CHECK(GetFileInformationByHandleEx(again, FileIdInfo, &other_id, sizeof other_id));
    CHECK(memcmp(&id, &other_id, sizeof id) == 0);
    CHECK(CloseHandle(again));
    again = opens("/k", GENERIC_WRITE, CREATE_NEW);
    CHECK(GetFileInformationByHandleEx(again, FileIdInfo, &other_id, sizeof other_id));
    CHECK(memcmp(&id, &other_id, sizeof id) != 0);
    CHECK(CloseHandle(again) && DeleteFileA(in("/k")) && DeleteFileA(in("/j")));
    CHECK(GetFileInformationByHandleEx(file, FileStandardInfo, &standard, sizeof standard));
    CHECK(standard.EndOfFile.QuadPart == 5 && standard.NumberOfLinks == 1 && !standard.Directory);
    CHECK(GetFileInformationByHandleEx(file, FileAttributeTagInfo, &tag, sizeof tag));
    CHECK(tag.FileAttributes == FILE_ATTRIBUTE_NORMAL && tag.ReparseTag == 0);
    /* A class can set times and attributes, too. */
    CHECK(GetFileInformationByHandleEx(file, FileBasicInfo, &basic, sizeof basic));
    basic.LastWriteTime.QuadPart = A_TIME;
    basic.FileAttributes = FILE_ATTRIBUTE_READONLY;
    CHECK(SetFileInformationByHandle(file, FileBasicInfo, &basic, sizeof basic));
    CHECK(GetFileInformationByHandleEx(file, FileBasicInfo, &basic, sizeof basic));
    CHECK(basic.LastWriteTime.QuadPart == A_TIME && basic.FileAttributes == FILE_ATTRIBUTE_READONLY);
    memset(&basic, 0, sizeof basic);
    CHECK(SetFileInformationByHandle(file, FileBasicInfo, &basic, sizeof basic));
    CHECK_IS(GetFileAttributesA(in("/i")), FILE_ATTRIBUTE_READONLY);
    CHECK(CloseHandle(file) && SetFileAttributesA(in("/i"), FILE_ATTRIBUTE_NORMAL));
    file = opens("/i", GENERIC_WRITE, OPEN_EXISTING);
    CHECK(DeleteFileA(in("/i")));
    CHECK(GetFileInformationByHandleEx(file, FileStandardInfo, &standard, sizeof standard));
    CHECK(standard.DeletePending && standard.NumberOfLinks == 0);
    CHECK(CloseHandle(file));
    file = OPENED("", GENERIC_READ, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS);
    CHECK(GetFileInformationByHandle(file, &one));
    CHECK(one.dwFileAttributes == FILE_ATTRIBUTE_DIRECTORY && one.nFileSizeLow == 0);
    CHECK(CloseHandle(file));
    CHECK(GetFileInformationByHandle(GetStdHandle(STD_ERROR_HANDLE), &one));
}

static void what_is_asked_wrongly_fails(void)
{
    BY_HANDLE_FILE_INFORMATION information;
    WIN32_FILE_ATTRIBUTE_DATA data;
    FILE_END_OF_FILE_INFO end;
    FILE_BASIC_INFO basic;
    WCHAR wide[160];
    HANDLE event = CreateEventA(NULL, TRUE, FALSE, NULL);
    HANDLE file = opens("/w", GENERIC_READ | GENERIC_WRITE, CREATE_NEW);
    end.EndOfFile.QuadPart = 7;
    CHECK(SetFileInformationByHandle(file, FileEndOfFileInfo, &end, sizeof end));
    CHECK_IS(size_of(file), 7);
    CHECK_IS(seeks(file, 0, FILE_CURRENT), 0);
    end.EndOfFile.QuadPart = -1;
    CHECK_FALSE(SetFileInformationByHandle(file, FileEndOfFileInfo, &end, sizeof end), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(SetFileInformationByHandle(file, FileEndOfFileInfo, &end, 7), ERROR_BAD_LENGTH);
    CHECK_FALSE(SetFileInformationByHandle(file, FileEndOfFileInfo, NULL, 8), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(SetFileInformationByHandle(file, FileStandardInfo, &end, sizeof end), ERROR_NOT_SUPPORTED);
    CHECK_FALSE(GetFileInformationByHandleEx(file, FileStreamInfo, &data, sizeof data), ERROR_NOT_SUPPORTED);
    CHECK_FALSE(GetFileInformationByHandleEx(file, MaximumFileInfoByHandleClass, &data, sizeof data),
                ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetFileInformationByHandleEx(file, FileBasicInfo, &data, 39), ERROR_BAD_LENGTH);
    CHECK_FALSE(GetFileInformationByHandleEx(event, FileBasicInfo, &basic, sizeof basic), ERROR_INVALID_HANDLE);
    CHECK_FALSE(GetFileInformationByHandle(file, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetFileInformationByHandle(event, &information), ERROR_INVALID_HANDLE);
    CHECK_FALSE(GetFileInformationByHandle(INVALID_HANDLE_VALUE, &information), ERROR_INVALID_HANDLE);
    CHECK(CloseHandle(file));
    CHECK_FALSE(GetFileInformationByHandle(file, &information), ERROR_INVALID_HANDLE);
    file = opens("/w", GENERIC_READ, OPEN_EXISTING);
    end.EndOfFile.QuadPart = 1;
    memset(&basic, 0, sizeof basic);
    basic.FileAttributes = FILE_ATTRIBUTE_READONLY;
    CHECK_FALSE(SetFileInformationByHandle(file, FileEndOfFileInfo, &end, sizeof end), ERROR_ACCESS_DENIED);
    CHECK_FALSE(SetFileInformationByHandle(file, FileBasicInfo, &basic, sizeof basic), ERROR_ACCESS_DENIED);
    CHECK(CloseHandle(file) && CloseHandle(event));
    memset(&data, 0xA5, sizeof data);
    CHECK(MultiByteToWideChar(CP_UTF8, 0, in("\\w"), -1, wide, 160) > 0);
    CHECK(GetFileAttributesExW(wide, GetFileExInfoStandard, &data));
    CHECK(data.dwFileAttributes == FILE_ATTRIBUTE_NORMAL && data.nFileSizeLow == 7 && data.nFileSizeHigh == 0);
    CHECK_FALSE(GetFileAttributesExA(in("\\w"), GetFileExMaxInfoLevel, &data), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetFileAttributesExA(in("\\w"), GetFileExInfoStandard, NULL), ERROR_INVALID_PARAMETER);
    CHECK_FALSE(GetFileAttributesExA(in("\\none"), GetFileExInfoStandard, &data), ERROR_FILE_NOT_FOUND);
    CHECK_FALSE(GetFileAttributesExA(in("\\none\\w"), GetFileExInfoStandard, &data), ERROR_PATH_NOT_FOUND);
    CHECK_FALSE(GetFileAttributesExA(NULL, GetFileExInfoStandard, &data), ERROR_PATH_NOT_FOUND);
    CHECK(SetFileAttributesW(wide, FILE_ATTRIBUTE_READONLY | FILE_ATTRIBUTE_HIDDEN));
    CHECK_IS(GetFileAttributesW(wide), FILE_ATTRIBUTE_READONLY);
    CHECK(SetFileAttributesA(in("/w"), FILE_ATTRIBUTE_ARCHIVE));
    CHECK_IS(GetFileAttributesW(wide), FILE_ATTRIBUTE_NORMAL);
    CHECK(SetFileAttributesA(folder, FILE_ATTRIBUTE_READONLY));
    CHECK_IS(GetFileAttributesA(folder), FILE_ATTRIBUTE_DIRECTORY);
    CHECK_FALSE(SetFileAttributesA(in("/none"), FILE_ATTRIBUTE_READONLY), ERROR_FILE_NOT_FOUND);
    CHECK_FALSE(SetFileAttributesA(NULL, FILE_ATTRIBUTE_READONLY), ERROR_PATH_NOT_FOUND);
    CHECK(DeleteFileA(in("/w")));
}

static void whole_is(const char *name, const char *whole, const char *last)
{
    char text[300], *part = text;
    CHECK_IS(GetFullPathNameA(name, sizeof text, text, &part), strlen(whole));
    if (strcmp(text, whole) != 0 || (last ? part == NULL || strcmp(part, last) != 0 : part != NULL)) {
        fprintf(stderr, "%s is %s\n", name, text);
        exit(1);
    }
}

static void a_name_has_a_whole_form(void)
{
    char before[300], text[300];
    WCHAR wide[300], *part = NULL;
    CHECK(GetCurrentDirectoryA(sizeof before, before) < sizeof before);
    CHECK(SetCurrentDirectoryA(folder));
    CHECK_IS(GetCurrentDirectoryA(sizeof text, text), strlen(folder));
    CHECK(strcmp(text, folder) == 0);
    CHECK_IS(GetCurrentDirectoryA((DWORD)strlen(folder), text), strlen(folder) + 1);
    CHECK_IS(GetCurrentDirectoryW(300, wide), strlen(folder));
    CHECK_IS(GetCurrentDirectoryW(0, NULL), strlen(folder) + 1);
    whole_is("a", in("/a"), "a");
    whole_is(".\\a\\..\\b\\.\\c", in("/b/c"), "c");
    whole_is("a\\", in("/a/"), NULL);
    whole_is("\\x\\\\y\\..\\..\\..\\z", "/z", "z");
    whole_is("\\..", "/", NULL);
    whole_is("\\x\\..", "/", NULL);
    whole_is("\\x\\y\\..", "/x", "x");
    whole_is("\\x\\.", "/x", "x");
    whole_is(".", folder, strrchr(folder, '/') + 1);
    whole_is("\\..x\\.y\\...", "/..x/.y/...", "...");
    CHECK_IS(GetFullPathNameA("\\four", 5, text, NULL), 6);
    CHECK_IS(GetFullPathNameA("\\four", 6, text, NULL), 5);
    CHECK_IS(GetFullPathNameW(L"\\x\\y", 300, wide, &part), 4);
    CHECK(wcscmp(wide, L"/x/y") == 0 && part == wide + 3);
    CHECK_IS(GetFullPathNameW(L"\\x\\y", 4, wide, NULL), 5);
    CHECK_FALSE(GetFullPathNameA("", sizeof text, text, NULL), ERROR_INVALID_NAME);
    CHECK_FALSE(GetFullPathNameA(NULL, sizeof text, text, NULL), ERROR_INVALID_NAME);
    CHECK_FALSE(GetFullPathNameW(NULL, 300, wide, NULL), ERROR_INVALID_NAME);
    CHECK_FALSE(SetCurrentDirectoryA("none"), ERROR_FILE_NOT_FOUND);
    CHECK_FALSE(SetCurrentDirectoryW(NULL), ERROR_PATH_NOT_FOUND);
    CHECK(SetCurrentDirectoryA(before));
}

int main(void)
{
    start();
    snprintf(folder, sizeof folder, "/tmp/cp-files-XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    what_is_there_decides_what_is_opened();
    a_name_is_a_name_of_the_system();
    a_file_is_read_and_written_where_it_is();
    a_file_is_used_only_as_it_was_opened();
    what_is_not_shared_is_opened_once();
    flags_say_how_a_file_is_kept();
    names_are_changed();
    an_overlapped_says_where_though_the_call_waits();
    a_pipe_is_read_as_it_comes();
    a_pattern_is_that_of_the_reference();
    what_is_found_is_told();
    threads_find_together();
    a_file_has_times();
    a_file_has_an_identity();
    what_is_asked_wrongly_fails();
    a_name_has_a_whole_form();
    CHECK(DeleteFileA(in("/c")) && DeleteFileA(in("/d")) && DeleteFileA(in("/e")));
    CHECK(RemoveDirectoryA(folder));
    return finish();
}
