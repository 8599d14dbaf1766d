c: test.nop
a: test.nop
b: test.nop
