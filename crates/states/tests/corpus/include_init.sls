include:
  - inc
own: test.nop
