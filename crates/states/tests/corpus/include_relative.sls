include:
  - inc.relative
own: test.nop
