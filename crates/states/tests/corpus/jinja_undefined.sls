{{ nothing }}: test.nop
