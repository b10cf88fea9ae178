"""Squares numbers in worker processes:  pool.py spawn|fork"""

import multiprocessing
import sys


def square(number):
    return number * number


if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(square, range(4)))
