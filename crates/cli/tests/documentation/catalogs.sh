# The nodes are back in one environment, with the newest code.
bunraku environment unpin production
bunraku node assign web-1 web-2 production
bunraku environment deploy production --wait
bunraku release create production
