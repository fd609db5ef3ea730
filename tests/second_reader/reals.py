"""The real functions of SPEC.md, in f32 and bit by bit. All but `pow` take arrays."""

import numpy as np

def bits(x):
    return np.asarray(x, np.float32).view(np.uint32)

def number(b):
    """float(b) of SPEC.md."""
    return np.asarray(b).astype(np.uint32).view(np.float32)[()]

def exp(x):
    x0, b = x, bits(x)
    h, negative = b & 0x7FFFFFFF, (b >> 31) == 1
    huge, tiny = (h >= 0x42B17218) & ~negative, (h >= 0x42CFF1B5) & negative
    x = np.where(huge | tiny | (h > 0x7F800000), np.float32(0), x)
    one = np.where(negative, np.float32(-1), np.float32(1))
    k = np.where(h > 0x3F851592, np.trunc(number(0x3FB8AA3B) * x + one * np.float32(0.5)), one)
    k = np.where(h > 0x3EB17218, k, np.float32(0))
    hi, lo = x - k * number(0x3F317200), k * number(0x35BFBE8E)
    x = hi - lo
    xx = x * x
    c = x - xx * (number(0x3E2AAA8F) + xx * number(0xBB355215))
    y = np.ldexp(1 + ((x * c) / (2 - c) - lo + hi), k.astype(np.int32))
    y = np.where(h > 0x39000000, y, 1 + x0)
    y = np.where(tiny, np.float32(0), np.where(huge, np.float32(np.inf), y))
    return np.where(h > 0x7F800000, x0, y)

LOG_G = [number(b) for b in (0x3F2AAAAA, 0x3ECCCE13, 0x3E91E9EE, 0x3E789E26)]
LN2_HI, LN2_LO = number(0x3F317180), number(0x3717F7D1)

def log_series(s):
    z = s * s
    w = z * z
    return z * (LOG_G[0] + w * LOG_G[2]) + w * (LOG_G[1] + w * LOG_G[3])

def log(x):
    x0, b = x, bits(x)
    small = b < 0x00800000
    i = np.where(small, bits(x * np.float32(2**25)), b) + np.uint32(0x3F800000 - 0x3F3504F3)
    k = ((i >> 23).astype(np.int32) - 127 + np.where(small, -25, 0)).astype(np.float32)
    d = number((i & 0x007FFFFF) + 0x3F3504F3) - 1
    s = d / (2 + d)
    q = (np.float32(0.5) * d) * d
    y = s * (q + log_series(s)) + k * LN2_LO - q + d + k * LN2_HI
    y = np.where(b == 0x3F800000, np.float32(0), np.where(b >= 0x7F800000, x0, y))
    return np.where(x0 == 0, np.float32(-np.inf), np.where(b >> 31 == 1, np.float32(np.nan), y))

def expm1(x):
    x0, b = x, bits(x)
    h, negative = b & 0x7FFFFFFF, (b >> 31) == 1
    down, up = (h >= 0x4195B844) & negative, (h > 0x42B17217) & ~negative
    x = np.where(down | up | (h > 0x7F800000), np.float32(0), x)
    one = np.where(negative, np.float32(-1), np.float32(1))
    k = np.where(h < 0x3F851592, one, np.trunc(number(0x3FB8AA3B) * x + one * np.float32(0.5)))
    k = np.where(h > 0x3EB17218, k, np.float32(0))
    hi, lo = x - k * LN2_HI, k * LN2_LO
    x = hi - lo
    c = (hi - x) - lo
    k = k.astype(np.int32)
    half = np.float32(0.5) * x
    hxs = x * half
    r = 1 + hxs * (number(0xBD088868) + hxs * number(0x3ACF3010))
    t = 3 - r * half
    e = hxs * ((r - t) / (6 - x * t))
    zero = x - (x * e - hxs)
    e = (x * (e - c) - c) - hxs
    plus = np.where(x < -0.25, -2 * (e - (x + np.float32(0.5))), 1 + 2 * (x - e))
    minus = np.float32(0.5) * (x - e) - np.float32(0.5)
    power = np.ldexp(np.float32(1), -k)
    near = np.ldexp(np.where(k < 23, (x - e) + (1 - power), (x - (e + power)) + 1), k)
    y = np.where((k < 0) | (k > 56), np.ldexp((x - e) + 1, k) - 1, near)
    y = np.where(k == 0, zero, np.where(k == 1, plus, np.where(k == -1, minus, y)))
    y = np.where(h < 0x33000000, x0, y)
    y = np.where(up, np.float32(np.inf), np.where(down, np.float32(-1), y))
    return np.where(h > 0x7F800000, x0, y)

def tanh(x):
    a = np.abs(x)
    h = bits(a)
    up, down = expm1(2 * a), expm1(-2 * a)
    y = np.where(h > 0x3F0C9F54, 1 - 2 / (up + 2), np.where(h > 0x3E82C578, up / (up + 2), -down / (down + 2)))
    y = np.where(h > 0x41200000, 1 + np.float32(0) / a, np.where(h < 0x00800000, a, y))
    return np.where(bits(x) >> 31 == 1, -y, y)

def sigmoid(x):
    return 1 / (1 + exp(-x))

POW_L = [number(b) for b in (0x3F19999A, 0x3EDB6DB7, 0x3EAAAAAB, 0x3E8BA305, 0x3E6C3255, 0x3E53F142)]
POW_P = [number(b) for b in (0x3E2AAAAB, 0xBB360B61, 0x388AB355, 0xB5DDEA0E, 0x3331BB4C)]

def polynomial(x, coefficients):
    result = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = c + x * result
    return result

def top(x, mask=0xFFFFF000):
    return number(int(bits(x)) & mask)

def pow_scalar(x: np.float32, y: np.float32) -> np.float32:
    one, inf = np.float32(1), np.float32(np.inf)
    a, negative = np.abs(x), int(bits(x)) >> 31 == 1
    whole = np.isfinite(y) and np.trunc(y) == y
    odd = whole and int(y) % 2 == 1
    if y == 0 or x == 1:
        return one
    if np.isnan(x) or np.isnan(y):
        return np.float32(np.nan)
    if np.isinf(y):
        return one if a == 1 else inf if (a > 1) == (y > 0) else np.float32(0)
    if y == 1:
        return x
    if y == -1:
        return one / x
    if y == 2:
        return x * x
    if y == 0.5 and not negative:
        return np.sqrt(x)
    if a in (0, 1) or np.isinf(a):
        z = a if y > 0 else one / a
        if negative:
            if x == -1 and not whole:
                return np.float32(np.nan)
            z = -z if odd else z
        return z
    if x < 0 and not whole:
        return np.float32(np.nan)
    sign = np.float32(-1 if x < 0 and odd else 1)
    over, under = sign * inf, sign * np.float32(0)
    if np.abs(y) > 2**27:
        if bits(a) < 0x3F7FFFF8:
            return over if y < 0 else under
        if bits(a) > 0x3F800007:
            return over if y > 0 else under
        t = a - 1
        w = (t * t) * (np.float32(0.5) - t * (number(0x3EAAAAAB) - t * np.float32(0.25)))
        u = number(0x3FB8AA00) * t
        v = t * number(0x36ECA570) - w * number(0x3FB8AA3B)
        t1 = top(u + v)
        t2 = v - (t1 - u)
    else:
        t1, t2 = log2_of(a)
    y1 = top(y)
    p_l, p_h = (y - y1) * t1 + y * t2, y1 * t1
    z = p_l + p_h
    j = int(bits(z).astype(np.int32))
    i = j & 0x7FFFFFFF
    if j > 0x43000000 or (j == 0x43000000 and p_l + number(0x3338AA3C) > z - p_h):
        return over
    if i > 0x43160000 or (int(bits(z)) == 0xC3160000 and p_l <= z - p_h):
        return under
    n = 0
    if i > 0x3F000000:
        m = (j + (0x00800000 >> ((i >> 23) - 127 + 1))) & 0xFFFFFFFF
        k = ((m & 0x7FFFFFFF) >> 23) - 127
        t = number(m & ~(0x007FFFFF >> k) & 0xFFFFFFFF)
        n = ((m & 0x007FFFFF) | 0x00800000) >> (23 - k)
        n = -n if j < 0 else n
        p_h = p_h - t
    t = top(p_l + p_h, 0xFFFF8000)
    u = t * number(0x3F317200)
    v = (p_l - (t - p_h)) * number(0x3F317218) + t * number(0x35BFBE8C)
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * polynomial(t, POW_P)
    r = (z * t1) / (t1 - 2) - (w + z * w)
    return sign * np.ldexp(1 - (r - z), n)

def log2_of(a):
    """log2 of a positive f32 as two numbers, the middle part of pow."""
    n = 0
    if bits(a) < 0x00800000:
        a, n = a * np.float32(2**24), -24
    i = int(bits(a))
    n += (i >> 23) - 127
    j = i & 0x007FFFFF
    i = j | 0x3F800000
    b = 1 if 0x1CC471 < j < 0x5DB3D7 else 0
    if j >= 0x5DB3D7:
        n, i = n + 1, i - 0x00800000
    a, n = number(i), np.float32(n)
    base, dp_h, dp_l = np.float32([1, 1.5][b]), number([0, 0x3F15C000][b]), number([0, 0x35D1CFDC][b])
    u, v = a - base, 1 / (a + base)
    s = u * v
    s_h = top(s)
    t_h = number((((i >> 1) & 0xFFFFF000) | 0x20000000) + 0x00400000 + (b << 21))
    t_l = a - (t_h - base)
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = s * s
    r = (s2 * s2) * polynomial(s2, POW_L) + s_l * (s_h + s)
    s2 = s_h * s_h
    t_h = top((3 + s2) + r)
    t_l = r - ((t_h - 3) - s2)
    u, v = s_h * t_h, s_l * t_h + t_l * s
    p_h = top(u + v)
    p_l = v - (p_h - u)
    z_h = number(0x3F764000) * p_h
    z_l = number(0xB8F623C6) * p_h + p_l * number(0x3F76384F) + dp_l
    t1 = top(((z_h + z_l) + dp_h) + n)
    return t1, z_l - (((t1 - n) - dp_h) - z_h)
