"""Operations: a kernel, its arguments and where it runs; what a program records, fuses and replays."""
