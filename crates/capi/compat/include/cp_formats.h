/*
 * cp_formats.h: formats as in the reference's C library. Included by <cp_crt.h>.
 *
 * In a wide format %s and %c are wide, %S and %C narrow. In a narrow format it is the other way round. In both, %hs is
 * narrow, and %ls and %ws are wide. %I64d has 64 bits, %I32d has 32, and %Id has as many as a pointer. Narrow text is
 * UTF-8, whatever the locale. %n is rejected.
 */
#ifndef CP_FORMATS_H
#define CP_FORMATS_H

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include <cp_text.h>

/* The destination. Text that does not fit is only counted. `room` and `length` are in characters of the text. */
typedef struct cp_out {
    char *narrow;
    wchar_t *wide;
    size_t room;
    size_t length;
} cp_out;

/* On some machines va_list is an array, and then a pointer to a parameter would have the wrong type. */
typedef struct cp_arguments {
    va_list list;
} cp_arguments;

/* The size of an argument, or whether text is wide: none, or `h`, `hh`, `l`, `ll`, `L`, and those with the size of a
 * pointer. */
enum { CP_SIZE_PLAIN, CP_SIZE_SHORT, CP_SIZE_CHAR, CP_SIZE_LONG, CP_SIZE_64, CP_SIZE_LONG_DOUBLE, CP_SIZE_POINTER };

/* The specification that follows a `%`. */
typedef struct cp_spec {
    char flags[8];
    int width;
    int precision; /* -1: none */
    int size;
    uint32_t kind;
} cp_spec;

/* A position in the format, which is in `narrow` or in `wide`. */
typedef struct cp_format {
    const char *narrow;
    const wchar_t *wide;
} cp_format;

CP_INLINE uint32_t cp_format_at(const cp_format *it) {
    return it->wide ? (uint32_t)*it->wide : (unsigned char)*it->narrow;
}

CP_INLINE void cp_format_step(cp_format *it) {
    if (it->wide)
        it->wide++;
    else
        it->narrow++;
}

/* Consumes this character if it comes next. */
CP_INLINE int cp_format_takes(cp_format *it, char wanted) {
    if (cp_format_at(it) != (unsigned char)wanted)
        return 0;
    cp_format_step(it);
    return 1;
}

/* Writes one character of the text unchanged: a byte or a wide character. */
CP_INLINE void cp_out_unit(cp_out *out, uint32_t unit) {
    if (out->length < out->room && out->wide)
        out->wide[out->length] = (wchar_t)unit;
    else if (out->length < out->room)
        out->narrow[out->length] = (char)unit;
    out->length++;
}

CP_INLINE void cp_out_letter(cp_out *out, uint32_t letter) {
    unsigned char bytes[4];
    size_t size, at;
    if (out->wide || letter < 0x80) {
        cp_out_unit(out, letter);
        return;
    }
    size = cp_put_letter(letter, bytes);
    for (at = 0; at < size; at++)
        cp_out_unit(out, bytes[at]);
}

CP_INLINE void cp_out_spaces(cp_out *out, int width, size_t taken) {
    for (; width > 0 && (size_t)width > taken; width--)
        cp_out_unit(out, ' ');
}

/* Writes narrow text of at most `size` bytes. */
CP_INLINE void cp_out_narrow(cp_out *out, const char *text, size_t size) {
    size_t bytes;
    for (; size > 0; text += bytes, size -= bytes) {
        uint32_t letter = out->wide ? cp_letter((const unsigned char *)text, size, &bytes) : (unsigned char)*text;
        if (!out->wide)
            bytes = 1;
        cp_out_unit(out, letter);
    }
}

/* Writes narrow or wide text, with its width and its precision, which counts characters of the argument. */
CP_INLINE void cp_out_text(cp_out *out, const cp_spec *spec, const char *narrow, const wchar_t *wide) {
    size_t most = spec->precision < 0 ? (size_t)-1 : (size_t)spec->precision;
    int is_left = strchr(spec->flags, '-') != NULL;
    size_t size = 0, at;
    cp_out measured;
    if (!narrow && !wide)
        narrow = "(null)";
    while (size < most && (narrow ? narrow[size] != 0 : wide[size] != 0))
        size++;
    measured = *out;
    measured.room = 0;
    measured.length = 0;
    if (narrow)
        cp_out_narrow(&measured, narrow, size);
    for (at = 0; !narrow && at < size; at++)
        cp_out_letter(&measured, (uint32_t)wide[at]);
    if (!is_left)
        cp_out_spaces(out, spec->width, measured.length);
    if (narrow)
        cp_out_narrow(out, narrow, size);
    for (at = 0; !narrow && at < size; at++)
        cp_out_letter(out, (uint32_t)wide[at]);
    if (is_left)
        cp_out_spaces(out, spec->width, measured.length);
}

/* Consumes this text if it comes next, and returns whether it did. */
CP_INLINE int cp_format_takes_all(cp_format *it, const char *wanted) {
    cp_format ahead = *it;
    for (; *wanted; wanted++)
        if (!cp_format_takes(&ahead, *wanted))
            return 0;
    *it = ahead;
    return 1;
}

CP_INLINE int cp_spec_read_size(cp_format *format) {
    static const struct {
        char text[4];
        int size;
    } sizes[] = {
        {"I64", CP_SIZE_64},  {"I32", CP_SIZE_PLAIN}, {"I", CP_SIZE_POINTER},     {"hh", CP_SIZE_CHAR},
        {"h", CP_SIZE_SHORT}, {"ll", CP_SIZE_64},     {"l", CP_SIZE_LONG},        {"w", CP_SIZE_LONG},
        {"j", CP_SIZE_64},    {"z", CP_SIZE_POINTER}, {"L", CP_SIZE_LONG_DOUBLE}, {"t", CP_SIZE_POINTER},
    };
    size_t at;
    for (at = 0; at < sizeof sizes / sizeof *sizes; at++)
        if (cp_format_takes_all(format, sizes[at].text))
            return sizes[at].size;
    return CP_SIZE_PLAIN;
}

/* Reads digits, or an argument for `*`. */
CP_INLINE int cp_spec_read_number(cp_format *format, cp_arguments *arguments) {
    int number = 0;
    if (cp_format_takes(format, '*'))
        return va_arg(arguments->list, int);
    while (cp_format_at(format) - '0' < 10U && number < INT_MAX / 10 - 1) {
        number = number * 10 + (int)(cp_format_at(format) - '0');
        cp_format_step(format);
    }
    return number;
}

/* Reads the specification after a `%`. Returns 0 if it is unknown. */
CP_INLINE int cp_spec_read(cp_spec *spec, cp_format *format, cp_arguments *arguments) {
    static const char known[] = "-+ #0";
    memset(spec, 0, sizeof *spec);
    while (cp_format_at(format) && cp_format_at(format) < 0x80 && strchr(known, (int)cp_format_at(format))) {
        /* Each flag once. */
        if (!strchr(spec->flags, (int)cp_format_at(format)))
            spec->flags[strlen(spec->flags)] = (char)cp_format_at(format);
        cp_format_step(format);
    }
    spec->width = cp_spec_read_number(format, arguments);
    if (spec->width < 0) {
        spec->width = spec->width > INT_MIN ? -spec->width : INT_MAX;
        if (!strchr(spec->flags, '-'))
            spec->flags[strlen(spec->flags)] = '-';
    }
    spec->precision = cp_format_takes(format, '.') ? cp_spec_read_number(format, arguments) : -1;
    spec->size = cp_spec_read_size(format);
    spec->kind = cp_format_at(format);
    if (spec->kind == 0 || spec->kind > 0x7F || !strchr("diouxXaAeEfFgGpcCsS%", (int)spec->kind))
        return 0;
    cp_format_step(format);
    return 1;
}

/* Returns a number of the argument's size as 64 bits. */
CP_INLINE long long cp_signed_argument(const cp_spec *spec, cp_arguments *arguments) {
    switch (spec->size) {
    case CP_SIZE_64:
        return va_arg(arguments->list, long long);
    case CP_SIZE_LONG:
        return va_arg(arguments->list, long);
    case CP_SIZE_POINTER:
        return (long long)va_arg(arguments->list, intptr_t);
    case CP_SIZE_SHORT:
        return (short)va_arg(arguments->list, int);
    case CP_SIZE_CHAR:
        return (signed char)va_arg(arguments->list, int);
    default:
        return va_arg(arguments->list, int);
    }
}

CP_INLINE unsigned long long cp_unsigned_argument(const cp_spec *spec, cp_arguments *arguments) {
    switch (spec->size) {
    case CP_SIZE_64:
        return va_arg(arguments->list, unsigned long long);
    case CP_SIZE_LONG:
        return va_arg(arguments->list, unsigned long);
    case CP_SIZE_POINTER:
        return va_arg(arguments->list, uintptr_t);
    case CP_SIZE_SHORT:
        return (unsigned short)va_arg(arguments->list, unsigned);
    case CP_SIZE_CHAR:
        return (unsigned char)va_arg(arguments->list, unsigned);
    default:
        return va_arg(arguments->list, unsigned);
    }
}

/* Writes a number as the C library does. Returns 0 if there is no memory. */
CP_INLINE int cp_out_number(cp_out *out, const cp_spec *spec, cp_arguments *arguments) {
    const int is_pointer = spec->kind == 'p', is_signed = spec->kind == 'd' || spec->kind == 'i';
    const int is_float = strchr("aAeEfFgG", (int)spec->kind) != NULL, is_long = spec->size == CP_SIZE_LONG_DOUBLE;
    char format[24], fixed[128], *text = fixed;
    long double large = is_float && is_long ? va_arg(arguments->list, long double) : 0;
    double number = is_float && !is_long ? va_arg(arguments->list, double) : 0;
    long long positive = is_signed ? cp_signed_argument(spec, arguments) : 0;
    void *pointer = is_pointer ? va_arg(arguments->list, void *) : NULL;
    unsigned long long other =
        !is_float && !is_signed && !is_pointer ? cp_unsigned_argument(spec, arguments) : 0;
    size_t room = sizeof fixed;
    int length;
    snprintf(format, sizeof format, "%%%s*.*%s%c", spec->flags,
             is_pointer ? "" : !is_float ? "ll" : is_long ? "L" : "", (char)spec->kind);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    for (;;) {
        if (is_pointer)
            length = snprintf(text, room, format, spec->width, spec->precision, pointer);
        else if (is_float && is_long)
            length = snprintf(text, room, format, spec->width, spec->precision, large);
        else if (is_float)
            length = snprintf(text, room, format, spec->width, spec->precision, number);
        else if (is_signed)
            length = snprintf(text, room, format, spec->width, spec->precision, positive);
        else
            length = snprintf(text, room, format, spec->width, spec->precision, other);
        if (length < 0 || (size_t)length < room || text != fixed)
            break;
        room = (size_t)length + 1;
        text = (char *)malloc(room);
        if (!text)
            return 0;
    }
#pragma GCC diagnostic pop
    if (length > 0)
        cp_out_narrow(out, text, (size_t)length);
    if (text != fixed)
        free(text);
    return length >= 0;
}

/* Whether text or a character is wide. */
CP_INLINE int cp_spec_is_wide(const cp_spec *spec, int format_is_wide) {
    if (spec->size == CP_SIZE_SHORT)
        return 0;
    if (spec->size == CP_SIZE_LONG)
        return 1;
    return (spec->kind == 's' || spec->kind == 'c') == format_is_wide;
}

/* Writes the text without a final zero. Returns its full length, or -1 if that cannot be determined. */
CP_INLINE int cp_out_format(cp_out *out, cp_format format, va_list list) {
    const int format_is_wide = format.wide != NULL;
    cp_arguments arguments;
    cp_spec spec;
    int good = 1;
    __builtin_va_copy(arguments.list, list);
    while (good && cp_format_at(&format)) {
        uint32_t unit = cp_format_at(&format);
        cp_format_step(&format);
        if (unit != '%') {
            cp_out_unit(out, unit);
        } else if (!cp_spec_read(&spec, &format, &arguments)) {
            good = 0;
        } else if (spec.kind == '%') {
            cp_out_unit(out, '%');
        } else if (spec.kind == 's' || spec.kind == 'S') {
            int is_wide = cp_spec_is_wide(&spec, format_is_wide);
            const void *text = va_arg(arguments.list, const void *);
            cp_out_text(out, &spec, is_wide ? NULL : (const char *)text, is_wide ? (const wchar_t *)text : NULL);
        } else if (spec.kind == 'c' || spec.kind == 'C') {
            int letter = va_arg(arguments.list, int);
            int is_wide = cp_spec_is_wide(&spec, format_is_wide), is_left = strchr(spec.flags, '-') != NULL;
            if (!is_left)
                cp_out_spaces(out, spec.width, 1);
            if (is_wide)
                cp_out_letter(out, (uint32_t)letter);
            else
                cp_out_unit(out, (unsigned char)letter);
            if (is_left)
                cp_out_spaces(out, spec.width, 1);
        } else {
            good = cp_out_number(out, &spec, &arguments);
        }
        good = good && out->length < INT_MAX;
    }
    va_end(arguments.list);
    if (!good)
        errno = EINVAL;
    return good ? (int)out->length : -1;
}

/* Whether a narrow format contains something that the system's functions read differently. */
CP_INLINE int cp_format_is_own(const char *format) {
    while ((format = strchr(format, '%')) != NULL) {
        format++;
        format += strspn(format, "-+ #0123456789.*'");
        if (*format == 'I' || *format == 'w' || *format == 'S' || *format == 'C' || *format == 'n' ||
            ((*format == 'l' || *format == 'h') && format[1] && strchr("scSC", format[1])))
            return 1;
        if (*format == '%')
            format++;
    }
    return 0;
}

/* Like vsnprintf, with the reference's formats. The caller may use the list again. */
__attribute__((__format__(__printf__, 3, 0))) CP_INLINE int cp_vsnprintf(char *buffer, size_t size,
                                                                         const char *format, va_list arguments) {
    cp_out out = {buffer, NULL, size > 0 ? size - 1 : 0, 0};
    cp_format text = {format, NULL};
    int length;
    if (!cp_format_is_own(format)) {
        /* On the reference a function uses up a copy of the caller's list. */
        cp_arguments copy;
        __builtin_va_copy(copy.list, arguments);
        length = vsnprintf(buffer, size, format, copy.list);
        va_end(copy.list);
        return length;
    }
    length = cp_out_format(&out, text, arguments);
    if (size > 0)
        buffer[length < 0 ? 0 : out.length < size ? out.length : size - 1] = '\0';
    return length;
}

/* The same for wide text. */
CP_INLINE int cp_vsnwprintf(wchar_t *buffer, size_t size, const wchar_t *format, va_list arguments) {
    wchar_t none;
    cp_out out = {NULL, buffer ? buffer : &none, size > 0 ? size - 1 : 0, 0};
    cp_format text = {NULL, format};
    int length = cp_out_format(&out, text, arguments);
    if (size > 0)
        buffer[length < 0 ? 0 : out.length < size ? out.length : size - 1] = L'\0';
    return length;
}

#endif
