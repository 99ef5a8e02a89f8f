/*
 * cp_facts.h: a file's metadata: times, size, attributes and identity. Included by <windows.h>.
 *
 * What differs: SetFileAttributes keeps only FILE_ATTRIBUTE_READONLY, and changes no folder. A time that the file
 * system does not record is 0, and the creation time cannot be set. Anything that is not a plain file has the size 0.
 * The volume's number comes from the device number, a file's index from its inode.
 */
#ifndef CP_FACTS_H
#define CP_FACTS_H

#include <string.h>

#include <cp_console.h>
#include <cp_files.h>
#include <cp_find.h>

typedef struct _BY_HANDLE_FILE_INFORMATION {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime;
    FILETIME ftLastAccessTime;
    FILETIME ftLastWriteTime;
    DWORD dwVolumeSerialNumber;
    DWORD nFileSizeHigh;
    DWORD nFileSizeLow;
    DWORD nNumberOfLinks;
    DWORD nFileIndexHigh;
    DWORD nFileIndexLow;
} BY_HANDLE_FILE_INFORMATION, *PBY_HANDLE_FILE_INFORMATION, *LPBY_HANDLE_FILE_INFORMATION;

typedef struct _WIN32_FILE_ATTRIBUTE_DATA {
    DWORD dwFileAttributes;
    FILETIME ftCreationTime;
    FILETIME ftLastAccessTime;
    FILETIME ftLastWriteTime;
    DWORD nFileSizeHigh;
    DWORD nFileSizeLow;
} WIN32_FILE_ATTRIBUTE_DATA, *LPWIN32_FILE_ATTRIBUTE_DATA;

typedef enum _GET_FILEEX_INFO_LEVELS { GetFileExInfoStandard, GetFileExMaxInfoLevel } GET_FILEEX_INFO_LEVELS;

typedef struct _FILE_ID_128 {
    BYTE Identifier[16];
} FILE_ID_128, *PFILE_ID_128;

typedef enum _FILE_INFO_BY_HANDLE_CLASS {
    FileBasicInfo = 0,
    FileStandardInfo = 1,
    FileNameInfo = 2,
    FileRenameInfo = 3,
    FileDispositionInfo = 4,
    FileAllocationInfo = 5,
    FileEndOfFileInfo = 6,
    FileStreamInfo = 7,
    FileCompressionInfo = 8,
    FileAttributeTagInfo = 9,
    FileIdBothDirectoryInfo = 10,
    FileIdBothDirectoryRestartInfo = 11,
    FileIoPriorityHintInfo = 12,
    FileRemoteProtocolInfo = 13,
    FileFullDirectoryInfo = 14,
    FileFullDirectoryRestartInfo = 15,
    FileStorageInfo = 16,
    FileAlignmentInfo = 17,
    FileIdInfo = 18,
    FileIdExtdDirectoryInfo = 19,
    FileIdExtdDirectoryRestartInfo = 20,
    MaximumFileInfoByHandleClass = 24
} FILE_INFO_BY_HANDLE_CLASS, *PFILE_INFO_BY_HANDLE_CLASS;

typedef struct _FILE_BASIC_INFO {
    LARGE_INTEGER CreationTime;
    LARGE_INTEGER LastAccessTime;
    LARGE_INTEGER LastWriteTime;
    LARGE_INTEGER ChangeTime;
    DWORD FileAttributes;
} FILE_BASIC_INFO, *PFILE_BASIC_INFO;

typedef struct _FILE_STANDARD_INFO {
    LARGE_INTEGER AllocationSize;
    LARGE_INTEGER EndOfFile;
    DWORD NumberOfLinks;
    BOOLEAN DeletePending;
    BOOLEAN Directory;
} FILE_STANDARD_INFO, *PFILE_STANDARD_INFO;

typedef struct _FILE_ATTRIBUTE_TAG_INFO {
    DWORD FileAttributes;
    DWORD ReparseTag;
} FILE_ATTRIBUTE_TAG_INFO, *PFILE_ATTRIBUTE_TAG_INFO;

typedef struct _FILE_END_OF_FILE_INFO {
    LARGE_INTEGER EndOfFile;
} FILE_END_OF_FILE_INFO, *PFILE_END_OF_FILE_INFO;

typedef struct _FILE_ID_INFO {
    ULONGLONG VolumeSerialNumber;
    FILE_ID_128 FileId;
} FILE_ID_INFO, *PFILE_ID_INFO;

/* For an open file, or for a standard stream. */
CP_INLINE BOOL cp_facts_of(HANDLE file, cp_facts *facts) {
    return cp_file_facts(file, cp_is_standard_stream(file) ? cp_standard_stream(file) : -1, facts);
}

CP_INLINE BOOL cp_facts_fail(DWORD code) {
    SetLastError(code);
    return FALSE;
}

CP_INLINE BOOL WINAPI GetFileInformationByHandle(HANDLE hFile, LPBY_HANDLE_FILE_INFORMATION lpFileInformation) {
    cp_facts facts;
    if (!lpFileInformation)
        return cp_facts_fail(ERROR_INVALID_PARAMETER);
    if (!cp_facts_of(hFile, &facts))
        return FALSE;
    lpFileInformation->dwFileAttributes = facts.attributes;
    lpFileInformation->ftCreationTime = cp_file_time(facts.created);
    lpFileInformation->ftLastAccessTime = cp_file_time(facts.accessed);
    lpFileInformation->ftLastWriteTime = cp_file_time(facts.written);
    lpFileInformation->dwVolumeSerialNumber = (DWORD)(facts.device >> 32 << 20 ^ facts.device);
    lpFileInformation->nFileSizeHigh = (DWORD)((uint64_t)facts.size >> 32);
    lpFileInformation->nFileSizeLow = (DWORD)facts.size;
    lpFileInformation->nNumberOfLinks = facts.links;
    lpFileInformation->nFileIndexHigh = (DWORD)(facts.index >> 32);
    lpFileInformation->nFileIndexLow = (DWORD)facts.index;
    return TRUE;
}

CP_INLINE BOOL cp_attributes_of(const cp_name *name, GET_FILEEX_INFO_LEVELS level, LPVOID information) {
    LPWIN32_FILE_ATTRIBUTE_DATA to = (LPWIN32_FILE_ATTRIBUTE_DATA)information;
    cp_facts facts;
    if (level != GetFileExInfoStandard || !to)
        return cp_facts_fail(ERROR_INVALID_PARAMETER);
    if (!cp_name_facts(name->text, 0, &facts))
        return FALSE;
    to->dwFileAttributes = facts.attributes;
    to->ftCreationTime = cp_file_time(facts.created);
    to->ftLastAccessTime = cp_file_time(facts.accessed);
    to->ftLastWriteTime = cp_file_time(facts.written);
    to->nFileSizeHigh = (DWORD)((uint64_t)facts.size >> 32);
    to->nFileSizeLow = (DWORD)facts.size;
    return TRUE;
}

CP_INLINE BOOL WINAPI GetFileAttributesExA(LPCSTR lpFileName, GET_FILEEX_INFO_LEVELS fInfoLevelId,
                                           LPVOID lpFileInformation) {
    cp_name name;
    return cp_name_of(&name, lpFileName) && cp_attributes_of(&name, fInfoLevelId, lpFileInformation);
}

CP_INLINE BOOL WINAPI GetFileAttributesExW(LPCWSTR lpFileName, GET_FILEEX_INFO_LEVELS fInfoLevelId,
                                           LPVOID lpFileInformation) {
    cp_name name;
    return cp_name_of_wide(&name, lpFileName) && cp_attributes_of(&name, fInfoLevelId, lpFileInformation);
}

CP_INLINE BOOL WINAPI SetFileAttributesA(LPCSTR lpFileName, DWORD dwFileAttributes) {
    cp_name name;
    return cp_name_of(&name, lpFileName) && cp_name_set_attributes(name.text, dwFileAttributes);
}

CP_INLINE BOOL WINAPI SetFileAttributesW(LPCWSTR lpFileName, DWORD dwFileAttributes) {
    cp_name name;
    return cp_name_of_wide(&name, lpFileName) && cp_name_set_attributes(name.text, dwFileAttributes);
}

CP_INLINE BOOL WINAPI GetFileTime(HANDLE hFile, LPFILETIME lpCreationTime, LPFILETIME lpLastAccessTime,
                                  LPFILETIME lpLastWriteTime) {
    cp_facts facts;
    if (!cp_facts_of(hFile, &facts))
        return FALSE;
    if (lpCreationTime)
        *lpCreationTime = cp_file_time(facts.created);
    if (lpLastAccessTime)
        *lpLastAccessTime = cp_file_time(facts.accessed);
    if (lpLastWriteTime)
        *lpLastWriteTime = cp_file_time(facts.written);
    return TRUE;
}

CP_INLINE int64_t cp_ticks_of(const FILETIME *time) {
    return time ? (int64_t)((uint64_t)time->dwHighDateTime << 32 | time->dwLowDateTime) : 0;
}

/* -1 and -2 have a meaning; anything less is not a time. */
CP_INLINE BOOL cp_set_file_times(HANDLE file, int64_t created, int64_t accessed, int64_t written) {
    if (created < -2 || accessed < -2 || written < -2)
        return cp_facts_fail(ERROR_INVALID_PARAMETER);
    return cp_file_set_times(file, accessed, written);
}

CP_INLINE BOOL WINAPI SetFileTime(HANDLE hFile, const FILETIME *lpCreationTime, const FILETIME *lpLastAccessTime,
                                  const FILETIME *lpLastWriteTime) {
    return cp_set_file_times(hFile, cp_ticks_of(lpCreationTime), cp_ticks_of(lpLastAccessTime),
                             cp_ticks_of(lpLastWriteTime));
}

CP_INLINE LONG WINAPI CompareFileTime(const FILETIME *lpFileTime1, const FILETIME *lpFileTime2) {
    uint64_t one = (uint64_t)cp_ticks_of(lpFileTime1), other = (uint64_t)cp_ticks_of(lpFileTime2);
    return one < other ? -1 : one > other;
}

/* ---- By class ---------------------------------------------------------------------------------------------- */

/* Whether there is room for the class's struct; `size` is 0 if the class is not supported. */
CP_INLINE BOOL cp_class_fits(FILE_INFO_BY_HANDLE_CLASS which, size_t size, const void *information, DWORD room) {
    if ((unsigned)which >= MaximumFileInfoByHandleClass || !information)
        return cp_facts_fail(ERROR_INVALID_PARAMETER);
    if (size == 0)
        return cp_facts_fail(ERROR_NOT_SUPPORTED);
    return room >= size || cp_facts_fail(ERROR_BAD_LENGTH);
}

CP_INLINE size_t cp_class_size(FILE_INFO_BY_HANDLE_CLASS which) {
    switch (which) {
    case FileBasicInfo:
        return sizeof(FILE_BASIC_INFO);
    case FileStandardInfo:
        return sizeof(FILE_STANDARD_INFO);
    case FileAttributeTagInfo:
        return sizeof(FILE_ATTRIBUTE_TAG_INFO);
    case FileIdInfo:
        return sizeof(FILE_ID_INFO);
    default:
        return 0;
    }
}

CP_INLINE void cp_basic_info(FILE_BASIC_INFO *to, const cp_facts *facts) {
    to->CreationTime.QuadPart = facts->created;
    to->LastAccessTime.QuadPart = facts->accessed;
    to->LastWriteTime.QuadPart = facts->written;
    to->ChangeTime.QuadPart = facts->changed;
    to->FileAttributes = facts->attributes;
}

CP_INLINE void cp_standard_info(FILE_STANDARD_INFO *to, const cp_facts *facts) {
    to->AllocationSize.QuadPart = facts->allocated;
    to->EndOfFile.QuadPart = facts->size;
    to->NumberOfLinks = facts->links;
    to->DeletePending = facts->links == 0;
    to->Directory = (facts->attributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

/* FileBasicInfo, FileStandardInfo, FileAttributeTagInfo and FileIdInfo. */
CP_INLINE BOOL WINAPI GetFileInformationByHandleEx(HANDLE hFile, FILE_INFO_BY_HANDLE_CLASS FileInformationClass,
                                                   LPVOID lpFileInformation, DWORD dwBufferSize) {
    size_t size = cp_class_size(FileInformationClass);
    cp_facts facts;
    if (!cp_class_fits(FileInformationClass, size, lpFileInformation, dwBufferSize) || !cp_facts_of(hFile, &facts))
        return FALSE;
    memset(lpFileInformation, 0, size);
    if (FileInformationClass == FileBasicInfo) {
        cp_basic_info((FILE_BASIC_INFO *)lpFileInformation, &facts);
    } else if (FileInformationClass == FileStandardInfo) {
        cp_standard_info((FILE_STANDARD_INFO *)lpFileInformation, &facts);
    } else if (FileInformationClass == FileIdInfo) {
        ((FILE_ID_INFO *)lpFileInformation)->VolumeSerialNumber = facts.device;
        memcpy(((FILE_ID_INFO *)lpFileInformation)->FileId.Identifier, &facts.index, sizeof facts.index);
    } else {
        ((FILE_ATTRIBUTE_TAG_INFO *)lpFileInformation)->FileAttributes = facts.attributes;
    }
    return TRUE;
}

/* FileBasicInfo, where attributes of 0 change nothing, and FileEndOfFileInfo. */
CP_INLINE BOOL WINAPI SetFileInformationByHandle(HANDLE hFile, FILE_INFO_BY_HANDLE_CLASS FileInformationClass,
                                                 LPVOID lpFileInformation, DWORD dwBufferSize) {
    size_t size = FileInformationClass == FileBasicInfo       ? sizeof(FILE_BASIC_INFO)
                  : FileInformationClass == FileEndOfFileInfo ? sizeof(FILE_END_OF_FILE_INFO)
                                                              : 0;
    const FILE_BASIC_INFO *basic = (const FILE_BASIC_INFO *)lpFileInformation;
    LONGLONG end;
    if (!cp_class_fits(FileInformationClass, size, lpFileInformation, dwBufferSize))
        return FALSE;
    if (FileInformationClass == FileBasicInfo)
        return cp_set_file_times(hFile, basic->CreationTime.QuadPart, basic->LastAccessTime.QuadPart,
                                 basic->LastWriteTime.QuadPart) &&
               (basic->FileAttributes == 0 || cp_file_set_attributes(hFile, basic->FileAttributes));
    end = ((const FILE_END_OF_FILE_INFO *)lpFileInformation)->EndOfFile.QuadPart;
    return end < 0 ? cp_facts_fail(ERROR_INVALID_PARAMETER) : cp_file_resize(hFile, end);
}

#if defined UNICODE || defined _UNICODE
#define GetFileAttributesEx GetFileAttributesExW
#define SetFileAttributes SetFileAttributesW
#else
#define GetFileAttributesEx GetFileAttributesExA
#define SetFileAttributes SetFileAttributesA
#endif

#endif
