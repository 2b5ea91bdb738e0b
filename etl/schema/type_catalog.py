"""The built-in types of Postgres, as ``pg_type`` lists them: the OIDs are fixed for all versions."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TypeCategory(StrEnum):
    """What kind of value a type holds, as far as a destination cares."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    NUMERIC = "numeric"
    MONEY = "money"
    STRING = "string"
    BYTES = "bytes"
    UUID = "uuid"
    JSON = "json"
    XML = "xml"
    DATE = "date"
    TIME = "time"
    TIMETZ = "timetz"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    INTERVAL = "interval"
    NETWORK = "network"
    BITS = "bits"
    GEOMETRIC = "geometric"
    RANGE = "range"
    OTHER = "other"
    ARRAY = "array"
    UNKNOWN = "unknown"


#: ``(oid, typname, typarray, category)`` of every built-in type that can be a column and has an array type.
#: A test compares it with a real server.
BUILT_IN: Final[tuple[tuple[int, str, int, TypeCategory], ...]] = (
    (16, "bool", 1000, TypeCategory.BOOLEAN),
    (17, "bytea", 1001, TypeCategory.BYTES),
    (18, "char", 1002, TypeCategory.STRING),
    (19, "name", 1003, TypeCategory.STRING),
    (20, "int8", 1016, TypeCategory.INTEGER),
    (21, "int2", 1005, TypeCategory.INTEGER),
    (22, "int2vector", 1006, TypeCategory.OTHER),
    (23, "int4", 1007, TypeCategory.INTEGER),
    (24, "regproc", 1008, TypeCategory.OTHER),
    (25, "text", 1009, TypeCategory.STRING),
    (26, "oid", 1028, TypeCategory.INTEGER),
    (27, "tid", 1010, TypeCategory.OTHER),
    (28, "xid", 1011, TypeCategory.OTHER),
    (29, "cid", 1012, TypeCategory.OTHER),
    (30, "oidvector", 1013, TypeCategory.OTHER),
    (114, "json", 199, TypeCategory.JSON),
    (142, "xml", 143, TypeCategory.XML),
    (600, "point", 1017, TypeCategory.GEOMETRIC),
    (601, "lseg", 1018, TypeCategory.GEOMETRIC),
    (602, "path", 1019, TypeCategory.GEOMETRIC),
    (603, "box", 1020, TypeCategory.GEOMETRIC),
    (604, "polygon", 1027, TypeCategory.GEOMETRIC),
    (628, "line", 629, TypeCategory.GEOMETRIC),
    (650, "cidr", 651, TypeCategory.NETWORK),
    (700, "float4", 1021, TypeCategory.FLOAT),
    (701, "float8", 1022, TypeCategory.FLOAT),
    (718, "circle", 719, TypeCategory.GEOMETRIC),
    (774, "macaddr8", 775, TypeCategory.NETWORK),
    (790, "money", 791, TypeCategory.MONEY),
    (829, "macaddr", 1040, TypeCategory.NETWORK),
    (869, "inet", 1041, TypeCategory.NETWORK),
    (1033, "aclitem", 1034, TypeCategory.OTHER),
    (1042, "bpchar", 1014, TypeCategory.STRING),
    (1043, "varchar", 1015, TypeCategory.STRING),
    (1082, "date", 1182, TypeCategory.DATE),
    (1083, "time", 1183, TypeCategory.TIME),
    (1114, "timestamp", 1115, TypeCategory.TIMESTAMP),
    (1184, "timestamptz", 1185, TypeCategory.TIMESTAMPTZ),
    (1186, "interval", 1187, TypeCategory.INTERVAL),
    (1266, "timetz", 1270, TypeCategory.TIMETZ),
    (1560, "bit", 1561, TypeCategory.BITS),
    (1562, "varbit", 1563, TypeCategory.BITS),
    (1700, "numeric", 1231, TypeCategory.NUMERIC),
    (1790, "refcursor", 2201, TypeCategory.OTHER),
    (2202, "regprocedure", 2207, TypeCategory.OTHER),
    (2203, "regoper", 2208, TypeCategory.OTHER),
    (2204, "regoperator", 2209, TypeCategory.OTHER),
    (2205, "regclass", 2210, TypeCategory.OTHER),
    (2206, "regtype", 2211, TypeCategory.OTHER),
    (2950, "uuid", 2951, TypeCategory.UUID),
    (2970, "txid_snapshot", 2949, TypeCategory.OTHER),
    (3220, "pg_lsn", 3221, TypeCategory.OTHER),
    (3614, "tsvector", 3643, TypeCategory.OTHER),
    (3615, "tsquery", 3645, TypeCategory.OTHER),
    (3642, "gtsvector", 3644, TypeCategory.OTHER),
    (3734, "regconfig", 3735, TypeCategory.OTHER),
    (3769, "regdictionary", 3770, TypeCategory.OTHER),
    (3802, "jsonb", 3807, TypeCategory.JSON),
    (3904, "int4range", 3905, TypeCategory.RANGE),
    (3906, "numrange", 3907, TypeCategory.RANGE),
    (3908, "tsrange", 3909, TypeCategory.RANGE),
    (3910, "tstzrange", 3911, TypeCategory.RANGE),
    (3912, "daterange", 3913, TypeCategory.RANGE),
    (3926, "int8range", 3927, TypeCategory.RANGE),
    (4072, "jsonpath", 4073, TypeCategory.OTHER),
    (4089, "regnamespace", 4090, TypeCategory.OTHER),
    (4096, "regrole", 4097, TypeCategory.OTHER),
    (4191, "regcollation", 4192, TypeCategory.OTHER),
    (4451, "int4multirange", 6150, TypeCategory.RANGE),
    (4532, "nummultirange", 6151, TypeCategory.RANGE),
    (4533, "tsmultirange", 6152, TypeCategory.RANGE),
    (4534, "tstzmultirange", 6153, TypeCategory.RANGE),
    (4535, "datemultirange", 6155, TypeCategory.RANGE),
    (4536, "int8multirange", 6157, TypeCategory.RANGE),
    (5038, "pg_snapshot", 5039, TypeCategory.OTHER),
    (5069, "xid8", 271, TypeCategory.OTHER),
)

#: Element types whose arrays stay text: ``box[]`` separates elements by ``;``, and the others print values full of
#: the array syntax's own characters for which no destination has a list of anything better than text.
TEXT_ARRAYS: Final = frozenset(oid for oid, _, _, category in BUILT_IN if category is TypeCategory.GEOMETRIC)
