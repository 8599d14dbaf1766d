include: inc.one
own: test.nop
