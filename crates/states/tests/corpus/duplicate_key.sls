one: test.nop
one: test.nop
