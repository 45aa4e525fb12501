"""One run: Algorithm 1 on every task, many at a time, written as it is finished."""
