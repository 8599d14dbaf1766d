one: [test.nop
