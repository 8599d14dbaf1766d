#!yaml
'{{ literal }}': test.nop
