# A file of text as a C string: cmake -DIN=FILE -DOUT=FILE.c -DNAME=SYMBOL -P embed.cmake
# Bytes, not a literal: those are limited, and need every quote escaped.

file(READ ${IN} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "extern const char ${NAME}[];\nconst char ${NAME}[] = {\n${bytes}0};\n")
