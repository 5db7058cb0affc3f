# Part of _compiled.pyx: dates, times and decimals as nearly everybody writes them.  What looks otherwise is left to
# `json_values.texts`, which the twin asks about all of them.

cdef int[13] MONTH_DAYS = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
cdef int64_t[19] UNITS = [10**power for power in range(19)]
cdef enum:
    UNIT_DIGITS_MAX = 18


cdef inline int two_digits(const uint8_t* p) noexcept:
    """A number of two digits; -1000: there are none, which makes a sum with others negative, too."""
    if not is_digit(p[0]) or not is_digit(p[1]):
        return -1000
    return 10 * (p[0] - 48) + (p[1] - 48)


cdef bint plain_date(const uint8_t* p, int64_t* days) noexcept:
    """Reads ten bytes as a date, in days since 1970: by years that begin in March, so that a leap day is the last one."""
    cdef int high = two_digits(p)
    cdef int low = two_digits(p + 2)
    cdef int month = two_digits(p + 5)
    cdef int day = two_digits(p + 8)
    cdef int year = 100 * high + low
    cdef bint is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if high < 0 or low < 0 or p[4] != b"-" or p[7] != b"-" or year < 1 or month < 1 or month > 12 or day < 1:
        return False
    if day > MONTH_DAYS[month] + (month == 2 and is_leap):
        return False
    year -= month <= 2
    month = month - 3 if month > 2 else month + 9
    days[0] = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    return True


cdef bint plain_clock(const uint8_t* p, int64_t* seconds) noexcept:
    """Reads five bytes, hours and minutes, as seconds."""
    cdef int hour = two_digits(p)
    cdef int minute = two_digits(p + 3)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or p[2] != b":":
        return False
    seconds[0] = 3600 * hour + 60 * minute
    return True


cdef bint plain_time(const uint8_t* p, Py_ssize_t size, int64_t* microseconds) noexcept:
    """Reads a time with seconds and a zone, far enough from the years that the zone may lead out of."""
    cdef const uint8_t* end = p + size
    cdef int64_t days = 0, seconds = 0, zone = 0
    cdef int64_t fraction = 0
    cdef int second, digits = 0
    if size < 20 or not plain_date(p, &days) or not -700_000 < days < 2_900_000:
        return False
    if (p[10] != b"T" and p[10] != 32) or not plain_clock(p + 11, &seconds) or p[16] != b":":
        return False
    second = two_digits(p + 17)
    if second < 0 or second > 59:
        return False
    p += 19
    if p[0] == b".":
        p += 1
        while p < end and is_digit(p[0]):
            if digits < 6:
                fraction = 10 * fraction + (p[0] - 48)
            digits += 1
            p += 1
        if digits < 1 or digits > 9:
            return False
        if digits < 6:
            fraction *= UNITS[6 - digits]
    if end - p == 6 and (p[0] == b"+" or p[0] == b"-"):
        if not plain_clock(p + 1, &zone):
            return False
        if p[0] == b"-":
            zone = -zone
    elif end - p != 1 or p[0] != b"Z":
        return False
    microseconds[0] = (86_400 * days + seconds + second - zone) * 1_000_000 + fraction
    return True


cdef bint plain_decimal(const uint8_t* p, Py_ssize_t size, int precision, int scale, int64_t* unscaled) noexcept:
    """Reads a number of json, without an exponent, that needs no rounding and not more than 18 digits."""
    cdef const uint8_t* end = p + size
    cdef bint is_negative = p[0] == b"-"
    cdef bint is_fraction = False
    cdef int64_t digits = 0
    cdef int behind = 0
    p += is_negative
    if end - p > UNIT_DIGITS_MAX:
        return False
    while p < end:
        if p[0] == b".":
            is_fraction = True
        elif not is_digit(p[0]):
            return False
        else:
            digits = 10 * digits + (p[0] - 48)
            behind += is_fraction
        p += 1
    if behind > scale or size + scale - behind > UNIT_DIGITS_MAX:
        return False
    digits *= UNITS[scale - behind]
    if precision < UNIT_DIGITS_MAX and digits >= UNITS[precision]:
        return False
    unscaled[0] = -digits if is_negative else digits
    return True
