include:
  - inc.one
  - inc.nested
exclude:
  - sls: inc.one
own: test.nop
