import os, sys

os.write(8, b".")
if os.read(8, 1) != b".":
    os._exit(125)
os.close(8)
del sys.argv[0]
if hasattr(sys, "orig_argv"):
    del sys.orig_argv[1]
sys.path[0] = os.path.dirname(os.path.realpath(sys.argv[0]))
__file__ = sys.argv[0]
try:
    with open(__file__, "rb") as f:
        code = f.read()
except OSError as e:
    sys.stderr.write("python3: can't open file %r: %s\n" % (__file__, e))
    sys.exit(2)
globals().pop("f", None)
code = compile(code, __file__, "exec", dont_inherit=True)
exec((globals().pop("code"), globals().pop("os"), globals().pop("sys"))[0])
